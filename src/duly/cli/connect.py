"""Opens the client for commands, and prints its errors for people."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import typer

from duly.cli import last_task
from duly.cli.exit_codes import DULY_FAILED
from duly.cli.output.text import clean_lines
from duly.client.retry import CallFailure, Patience
from duly.client.sync import Client
from duly.errors import DulyError, Unauthenticated, Unavailable, Unreachable

INTERACTIVE_RETRIES = Patience(total=timedelta(seconds=2), base_delay=timedelta(milliseconds=50))
"""For a person at a terminal: long enough for a hiccup, short enough to report an outage soon."""
WAITING_RETRIES = Patience(total=timedelta(minutes=2))
"""While waiting for a task: long enough for a server to restart."""
SUBMITTING_RETRIES = Patience(
    total=timedelta(seconds=20),
    unreachable=INTERACTIVE_RETRIES.total,
    base_delay=INTERACTIVE_RETRIES.base_delay,
)
"""For submitting: long enough for a failover of the database, if there is a server at all."""


def connect() -> Client:
    """Return a client for the configured server."""
    return Client(patience=INTERACTIVE_RETRIES)


def connect_to_submit() -> Client:
    """Return a client that submits through an outage of the database, and says so once."""
    client = Client(patience=SUBMITTING_RETRIES)

    def report_once(failure: CallFailure) -> None:
        if isinstance(failure, Unavailable):
            client.on_retry = None
            seconds = SUBMITTING_RETRIES.total.total_seconds()
            print_notice(
                f"duly: {failure.message.rstrip('.')}. Trying again for up to {seconds:g} s."
            )

    client.on_retry = report_once
    return client


def task_or_last(client: Client, task: str | None) -> str:
    """Return `task`, or by default the last task submitted from this machine by this user."""
    return last_task.recall(client.endpoint) if task is None else task


@contextmanager
def exit_125_on_error() -> Iterator[None]:
    """Exit with 125 on an error of Duly, because the other exit codes are the task's."""
    try:
        yield
    except DulyError as error:
        print_error(error)
        raise typer.Exit(DULY_FAILED) from error


def print_notice(text: str) -> None:
    """Print a message to stderr that is not part of the command's output."""
    print(clean_lines(text), file=sys.stderr, flush=True)


def print_error(error: DulyError) -> None:
    """Print an error and what to do about it."""
    print_notice(f"duly: {error.message}")
    match error:
        case Unreachable():
            print_notice(
                "Is it running? Start it here with `duly up`, or set DULY_URL to a server."
            )
        case Unauthenticated():
            print_notice(
                "Set DULY_KEY to a valid key; `duly up` keeps one in admin.key in its data folder."
            )
