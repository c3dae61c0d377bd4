"""`duly submit`, and waiting for what was submitted."""

from typing import Annotated

import typer

from duly.cli import last
from duly.cli.bundle import add_bundle
from duly.cli.connect import WHILE_WAITING, connect, ours, say
from duly.cli.exits import OURS, code_of_task, describe_end
from duly.cli.flags import TaskFlags, with_task_flags
from duly.cli.output import Output, OutputFlag, print_value
from duly.cli.request import duration, require_file_alone, require_payload, task_fields
from duly.cli.text import now, say_time
from duly.client.shapes import Task, TaskFields
from duly.client.sync import Client

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND", help="The program to run, and its arguments.", show_default=False
    ),
]
FileFlag = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A manifest in YAML or JSON: a task, a list of them, or a graph; - reads it here.",
    ),
]


@with_task_flags
def submit(
    flags: TaskFlags,
    command: Command = None,
    file: FileFlag = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until it has ended; exit as it did.")
    ] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Submit a task, or a file of them, and print the id."""
    if file is not None:
        from duly.cli.submit_file import submit_file

        require_file_alone(flags, command)
        submit_file(file, flags.idempotency_key, output, wait=wait)
        return
    fields = task_fields(flags, command or (), now=now())
    require_payload(fields)
    if wait:
        with ours():
            add_bundle(flags.bundle, fields)
            submit_and_wait(fields, output)
    add_bundle(flags.bundle, fields)
    with connect() as client:
        task = client.submit(**fields)
        last.remember(client.endpoint.name, task["id"])
    if output is Output.TABLE:
        print(f"submitted {task['id']}{_when(task)}")
    else:
        print_value(task, output)


def submit_and_wait(fields: TaskFields, output: Output) -> None:
    """Submit, wait for the end, and exit with it; Ctrl-C leaves the task alone."""
    with connect() as client:
        task = client.submit(**fields)
        last.remember(client.endpoint.name, task["id"])
        if output is Output.TABLE:
            print(f"submitted {task['id']}{_when(task)}", flush=True)
        client.patience = WHILE_WAITING
        ended = wait_for(client, task["id"])
    if output is not Output.TABLE:
        print_value(ended, output)
    raise typer.Exit(code_of_task(ended))


def wait_for(client: Client, task: str, timeout: str | None = None) -> Task:
    """Wait for a task and say how it ended; Ctrl-C leaves without touching it."""
    limit = None if timeout is None else duration("--timeout", timeout)
    try:
        ended = client.wait(task, limit)
    except TimeoutError as error:
        say(f"duly: {error}")
        raise typer.Exit(OURS) from None
    except KeyboardInterrupt:
        say(f"\nLeft task {task} to itself; it goes on. To come back: duly wait {task}")
        raise typer.Exit(OURS) from None
    say(describe_end(ended))
    return ended


def _when(task: Task) -> str:
    if task["status"] == "scheduled":
        return f", to run {say_time(task['ready_at'], now())}"
    return ""
