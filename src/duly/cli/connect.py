"""Opens the client for commands, and prints its errors for people."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import typer

from duly.cli import last_task
from duly.cli.exit_codes import DULY_FAILED
from duly.cli.output.text import clean_lines
from duly.cli.written_flags import flag_of_field, name_flags
from duly.client.retry import CallFailure, Patience
from duly.client.sync import Client
from duly.errors import (
    DulyError,
    Invalid,
    NotFound,
    Unauthenticated,
    Unavailable,
    Unreachable,
)

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
ADVICE_BY_KIND = {
    "attempt": "See its attempts with 'duly attempts'.",
    "artifact": "Give a SHA-256 from 'duly artifact list'.",
    "dead letter": "Give a task ID from 'duly dead list'.",
    "graph": "Give the ID or the name of a graph.",
    "key": "Give a key ID from 'duly key list'.",
    "node": "Give a node's ID or name from 'duly node list'.",
    "plan": "Give a name from 'duly plan list'.",
    "reservation": "Give an ID from 'duly resources list'.",
    "schedule": "Give a schedule's ID or name from 'duly schedule list'.",
    "task": "Give a task ID from 'duly list'.",
    "tenant": "Give a name from 'duly tenant list'.",
    "tier": "Give a name from 'duly tier list'.",
    "user": "Give a name from 'duly user list'.",
}
"""Where to look for what a server does not know, unless its message has advice of its own."""


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
            # Without what to do about it: that is done here.
            problem = failure.message.partition(". ")[0].rstrip(".")
            print_notice(f"duly: {problem}. Trying again for up to {seconds:g} s.")

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
    print_notice(f"duly: {describe_error(error)}")


def describe_error(error: DulyError) -> str:
    """Return an error in the user's words: with the flag that was given, and what to do next."""
    message = error.message
    if isinstance(error, Invalid) and message.startswith(f"{error.field}: "):
        place = flag_of_field(error.field) or error.field
        message = f"{place}: {name_flags(message.removeprefix(f'{error.field}: '))}"
    advice = _advice(error)
    return f"{message} {advice}" if advice else message


def _advice(error: DulyError) -> str:
    match error:
        case Unreachable():
            return "Is it running? Start it here with 'duly up', or set DULY_URL to a server."
        case Unauthenticated():
            return (
                "Set DULY_KEY to a valid key; 'duly up' keeps one in admin.key in its data folder."
            )
        case NotFound() | Invalid() if ". " not in error.message:
            return ADVICE_BY_KIND.get(str(error.details.get("kind")), "")
        case _:
            return ""
