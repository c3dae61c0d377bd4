"""`duly run`: a task as if it ran here."""

import signal
import sys
from types import FrameType

import typer

from duly.cli import last
from duly.cli.bundle import add_bundle
from duly.cli.connect import WHILE_WAITING, connect, ours, say
from duly.cli.exits import OURS, SIGNALLED, code_of_task, describe_end
from duly.cli.flags import TaskFlags, with_task_flags
from duly.cli.notice import Notice
from duly.cli.output import discard_output, write_bytes
from duly.cli.request import require_payload, task_fields
from duly.cli.submit import Command
from duly.cli.text import now
from duly.client.shapes import Task, TaskFields
from duly.client.sync import Client
from duly.errors import DulyError


@with_task_flags
def run(flags: TaskFlags, command: Command = None) -> None:
    """Run a task: submit it, show its output, exit as it did.

    A failure is not retried unless --max-attempts says so: its output would come twice.
    Ctrl-C cancels the task.
    """
    fields = task_fields(flags, command or (), now=now())
    require_payload(fields, "duly run -- echo hello")
    fields.setdefault("max_attempts", 1)
    with ours(), connect() as client:
        add_bundle(flags.bundle, fields)
        raise typer.Exit(run_task(client, fields))


def run_task(client: Client, fields: TaskFields) -> int:
    """Submit, pass the output on as it comes, and return the exit code."""
    interrupt = Interrupt(client)
    previous = signal.getsignal(signal.SIGINT)
    if previous is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        task = client.submit(**fields)
        last.remember(client.endpoint.name, task["id"])
        interrupt.task = task["id"]
        interrupt.cancel_if_asked()
        ended = pass_on(client, task["id"])
    except BrokenPipeError:
        # As in a pipeline of local commands: without a reader there is nothing to run for.
        client.cancel_task(task["id"])
        discard_output()
        return SIGNALLED + signal.SIGPIPE
    except KeyboardInterrupt:
        say(f"Left. What became of it: duly show {interrupt.task or ''}".rstrip())
        return OURS
    finally:
        signal.signal(signal.SIGINT, previous)
    say(describe_end(ended))
    return code_of_task(ended)


def pass_on(client: Client, task: str) -> Task:
    """Print what the task writes until it has ended, and return how it did."""
    client.patience = WHILE_WAITING
    with Notice(client, task) as notice:
        chunk = b"\n"
        for chunk in client.follow_logs(task):
            notice.stop()
            write_bytes(chunk)
        if not chunk.endswith(b"\n") and sys.stdout.isatty():
            write_bytes(b"\n")  # What we say of its end begins on a line of its own.
        return client.wait(task)


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
