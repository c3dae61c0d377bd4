"""`duly run`: runs a task as if it ran locally."""

import signal
import sys
from types import FrameType

import typer

from duly.cli import last_task
from duly.cli.connect import (
    WAITING_RETRIES,
    connect_to_submit,
    exit_125_on_error,
    print_error,
    print_notice,
)
from duly.cli.entry import INTERRUPTED
from duly.cli.exit_codes import DULY_FAILED, SIGNAL_BASE, describe_end, exit_code_for_task
from duly.cli.output.closed_pipe import describe_unwritable, discard_output, is_unwritable
from duly.cli.output.printing import write_bytes
from duly.cli.output.text import now
from duly.cli.output.truncation import MAX_NOTICE_BYTES, tell_if_truncated
from duly.cli.output.waiting_notice import WaitingNotice
from duly.cli.tasks.flags import TaskFlags, with_task_flags
from duly.cli.tasks.submission.bundle import add_bundle
from duly.cli.tasks.submission.read_access import require_read_access
from duly.cli.tasks.submission.request import require_payload, task_fields
from duly.cli.tasks.submission.submit import Command
from duly.cli.tasks.submission.surprises import describe_earlier, tell_if_past, tell_if_unplaceable
from duly.cli.tasks.submission.task_input import hint_at_unread_input
from duly.client.shapes.task_shapes import Task, TaskFields
from duly.client.sync import Client
from duly.errors import DulyError


@with_task_flags
def run(flags: TaskFlags, command: Command = None) -> None:
    """Run a task: submit it, stream its output, exit with its exit code.

    Failures are not retried unless --max-attempts is given, because the output would repeat.
    Ctrl-C cancels the task.
    """
    fields = task_fields(flags, command or (), now=now())
    require_payload(fields, "duly run -- echo hello")
    fields.setdefault("max_attempts", 1)
    tell_if_past(fields, now())
    hint_at_unread_input(flags.stdin)
    with exit_125_on_error(), connect_to_submit() as client:
        require_read_access(client)
        add_bundle(flags.bundle, fields)
        raise typer.Exit(run_task(client, fields))


def run_task(client: Client, fields: TaskFields) -> int:
    """Submit a task, stream its output, and return its exit code."""
    interrupt = Interrupt(client)
    previous = signal.getsignal(signal.SIGINT)
    if previous is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        task, is_new = client.submit_once(**fields)
        last_task.remember(client.endpoint, task["id"])
        interrupt.task = task["id"]
        interrupt.cancel_if_interrupted()
        if not is_new:
            print_notice(describe_earlier(task, fields))
        tell_if_unplaceable(client, task, fields)
        ended = stream_output(client, task["id"])
    except BrokenPipeError:
        # As in a pipeline of local commands: without a reader the task is pointless.
        client.cancel_task(task["id"])
        discard_output()
        return SIGNAL_BASE + signal.SIGPIPE
    except OSError as error:
        if not is_unwritable(error):
            raise
        client.cancel_task(task["id"])
        discard_output()
        print_notice(f"duly: {describe_unwritable(error)} Task {task['id']} is cancelled.")
        return DULY_FAILED
    except KeyboardInterrupt:
        show = f"duly show {interrupt.task or ''}".rstrip()
        print_notice(f"Detached; the task may still run. See it with: {show}")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, previous)
    print_notice(describe_end(ended))
    if interrupt.is_interrupted and ended["status"] == "cancelled":
        return INTERRUPTED
    return exit_code_for_task(ended)


def stream_output(client: Client, task: str) -> Task:
    """Print a task's output until it has ended, and return the task."""
    client.patience = WAITING_RETRIES
    with WaitingNotice(client, task) as notice:
        chunk, end = b"\n", b""
        for chunk in client.follow_logs(task):
            notice.stop()
            write_bytes(chunk)
            end = (end + chunk)[-MAX_NOTICE_BYTES:]
        tell_if_truncated(end)
        if not chunk.endswith(b"\n") and sys.stdout.isatty():
            write_bytes(b"\n")  # The summary starts on a new line.
        return client.wait(task)


class Interrupt:
    """Handles Ctrl-C during `run`: the first cancels the task, the second detaches at once.

    The signal handler returns, so the output continues to the task's last line.
    """

    def __init__(self, client: Client) -> None:
        self.task: str | None = None
        self._client = client
        self.is_interrupted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a SIGINT."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True
        print_notice("\nCancelling the task. Press Ctrl-C again to leave without waiting.")
        self.cancel_if_interrupted()

    def cancel_if_interrupted(self) -> None:
        """Cancel the task if Ctrl-C was pressed and the task is submitted."""
        if self.is_interrupted and self.task is not None:
            try:
                self._client.cancel_task(self.task)
            except DulyError as error:
                print_error(error)
