"""Submitting: `duly submit` and `duly run`."""

import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from duly.cli import last
from duly.cli.connect import WHILE_WAITING, connect, ours, say
from duly.cli.exits import OURS, SIGNALLED, code_of_task, describe_end
from duly.cli.flags import TaskFlags, with_task_flags
from duly.cli.output import Output, OutputFlag, print_value
from duly.cli.request import duration, require_payload, task_fields
from duly.cli.text import now, say_time
from duly.client.shapes import Task, TaskFields
from duly.client.sync import Client
from duly.errors import DulyError

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND", help="The program to run, and its arguments.", show_default=False
    ),
]


@with_task_flags
def submit(
    flags: TaskFlags,
    command: Command = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until it has ended; exit as it did.")
    ] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Submit a task and print its id."""
    fields = task_fields(flags, command or (), now=now())
    require_payload(fields)
    if wait:
        with ours():
            submit_and_wait(fields, output)
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
        ended = wait_for(client, task["id"])
    if output is not Output.TABLE:
        print_value(ended, output)
    raise typer.Exit(code_of_task(ended))


def wait_for(client: Client, task: str, timeout: str | None = None) -> Task:
    """Wait for a task and say how it ended; Ctrl-C leaves without touching it."""
    client.patience = WHILE_WAITING
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


@with_task_flags
def run(flags: TaskFlags, command: Command = None) -> None:
    """Run a task: submit it, show its output, exit as it did.

    A failure is not retried unless --max-attempts says so: its output would come twice.
    Ctrl-C cancels the task.
    """
    fields = task_fields(flags, command or (), now=now())
    require_payload(fields)
    fields.setdefault("max_attempts", 1)
    with ours(), connect() as client:
        raise typer.Exit(run_task(client, fields))


def run_task(client: Client, fields: TaskFields) -> int:
    """Submit, pass the output on as it comes, and return the exit code."""
    interrupt = Interrupt(client)
    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        task = client.submit(**fields)
        last.remember(client.endpoint.name, task["id"])
        interrupt.task = task["id"]
        interrupt.cancel_if_asked()
        client.patience = WHILE_WAITING
        for chunk in client.follow_logs(task["id"]):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        ended = client.wait(task["id"])
    except BrokenPipeError:
        # As in a pipeline of local commands: without a reader there is nothing to run for.
        client.cancel_task(task["id"])
        sys.stdout = None
        return SIGNALLED + signal.SIGPIPE
    except KeyboardInterrupt:
        say(f"Left. What became of it: duly show {interrupt.task or ''}".rstrip())
        return OURS
    finally:
        signal.signal(signal.SIGINT, previous)
    say(describe_end(ended))
    return code_of_task(ended)


class Interrupt:
    """What Ctrl-C does during `run`: the first cancels the task, the second leaves at once.

    It is a signal handler that returns, so the output goes on to the task's last line.
    """

    def __init__(self, client: Client) -> None:
        self.task: str | None = None
        self._client = client
        self._asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a SIGINT."""
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        say("\nCancelling; Ctrl-C again leaves without waiting for the end.")
        self.cancel_if_asked()

    def cancel_if_asked(self) -> None:
        """Cancel the task, once it is asked for and the task is known."""
        if self._asked and self.task is not None:
            try:
                self._client.cancel_task(self.task)
            except DulyError as error:
                say(f"duly: {error.message}")


def _when(task: Task) -> str:
    if task["status"] == "scheduled":
        return f", to run {say_time(task['ready_at'], now())}"
    return ""
