"""`duly submit`, and waiting for the submitted task."""

from typing import Annotated

import typer

from duly.cli import last_task
from duly.cli.connect import (
    WAITING_RETRIES,
    connect,
    connect_to_submit,
    exit_125_on_error,
    print_notice,
)
from duly.cli.entry import INTERRUPTED
from duly.cli.exit_codes import DULY_FAILED, describe_end, exit_code_for_task
from duly.cli.output.closed_pipe import telling_if_unwritable
from duly.cli.output.printing import Output, OutputFlag, print_value
from duly.cli.output.text import format_moment, now
from duly.cli.tasks.flags import TaskFlags, with_task_flags
from duly.cli.tasks.submission.bundle import add_bundle
from duly.cli.tasks.submission.read_access import require_read_access
from duly.cli.tasks.submission.request import require_file_alone, require_payload, task_fields
from duly.cli.tasks.submission.surprises import describe_earlier, tell_if_past, tell_if_unplaceable
from duly.cli.tasks.submission.task_input import hint_at_unread_input
from duly.client.shapes.task_shapes import Task, TaskFields
from duly.client.sync import Client

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND", help="The program to run, with its arguments.", show_default=False
    ),
]
FileFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A manifest in YAML or JSON: a task, a list of tasks, or a graph; - reads stdin.",
    ),
]


@with_task_flags
def submit(
    flags: TaskFlags,
    command: Command = None,
    file: FileFlag = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended, and exit with its exit code.")
    ] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Submit a task, or a manifest of tasks, and print its ID."""
    if file:
        if len(file) > 1:
            raise typer.BadParameter(
                "it is given more than once. Submit one file at a time.", param_hint="--file"
            )
        from duly.cli.tasks.submission.submit_file import submit_file

        require_file_alone(flags, command)
        submit_file(file[0], flags.idempotency_key, output, wait=wait)
        return
    fields = task_fields(flags, command or (), now=now())
    require_payload(fields)
    tell_if_past(fields, now())
    hint_at_unread_input(flags.stdin)
    if wait:
        with exit_125_on_error():
            with connect() as client:
                require_read_access(client)
            add_bundle(flags.bundle, fields)
            submit_and_wait(fields, output)
    add_bundle(flags.bundle, fields)
    with connect_to_submit() as client:
        task = submit_task(client, fields, output)
    if output is not Output.TABLE:
        with telling_if_unwritable(f"Task {task['id']} submitted."):
            print_value(task, output)


def submit_task(client: Client, fields: TaskFields, output: Output) -> Task:
    """Submit a task, remember it, and say whether it is new and whether a node can run it."""
    task, is_new = client.submit_once(**fields)
    last_task.remember(client.endpoint, task["id"])
    if not is_new:
        print_sentence = print if output is Output.TABLE else print_notice
        print_sentence(describe_earlier(task, fields))
    elif output is Output.TABLE:
        sentence = f"Task {task['id']} submitted.{_when(task)}"
        with telling_if_unwritable(sentence):
            print(sentence, flush=True)
    tell_if_unplaceable(client, task, fields)
    return task


def submit_and_wait(fields: TaskFields, output: Output) -> None:
    """Submit a task, wait for its end, and exit with its code; Ctrl-C detaches."""
    with connect_to_submit() as client:
        task = submit_task(client, fields, output)
        client.patience = WAITING_RETRIES
        ended = wait_for(client, task["id"])
    if output is not Output.TABLE:
        print_value(ended, output)
    raise typer.Exit(exit_code_for_task(ended))


def wait_for(client: Client, task: str, timeout: float | None = None, *, prefix: str = "") -> Task:
    """Wait for a task, and print how it ended after `prefix`; Ctrl-C detaches."""
    ended = _wait(client, task, timeout)
    print_notice(prefix + describe_end(ended))
    return ended


def _wait(client: Client, task: str, timeout: float | None) -> Task:
    """Wait for a task; Ctrl-C detaches."""
    try:
        return client.wait(task, timeout)
    except TimeoutError as error:
        print_notice(f"duly: {error}")
        raise typer.Exit(DULY_FAILED) from None
    except KeyboardInterrupt:
        print_notice(
            f"\nDetached from task {task}, which continues. Wait again with: duly wait {task}"
        )
        raise typer.Exit(INTERRUPTED) from None


def _when(task: Task) -> str:
    if task["status"] == "scheduled":
        return f" Scheduled to start at {format_moment(task['ready_at'], now())}."
    return ""
