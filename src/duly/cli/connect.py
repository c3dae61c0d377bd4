"""The client that commands use, and what is said when it cannot do its work."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import typer

from duly.cli import last
from duly.cli.exits import OURS
from duly.cli.text import clean_lines
from duly.client.retry import Patience
from duly.client.sync import Client
from duly.errors import DulyError, Unauthenticated, Unreachable

AT_A_TERMINAL = Patience(total=timedelta(seconds=2), base_delay=timedelta(milliseconds=50))
"""Somebody waits for the answer: long enough for a hiccup, short enough to be told soon."""
WHILE_WAITING = Patience(total=timedelta(minutes=2))
"""Once a task is under way, a server that restarts is waited for."""


def connect() -> Client:
    """Return a client for the configured server."""
    return Client(patience=AT_A_TERMINAL)


def which_task(client: Client, task: str | None) -> str:
    """Return the id that was given, or that of the last task submitted from here."""
    return last.recall(client.endpoint.name) if task is None else task


@contextmanager
def ours() -> Iterator[None]:
    """Let errors end the command with 125, because its other codes are the task's."""
    try:
        yield
    except DulyError as error:
        say_error(error)
        raise typer.Exit(OURS) from error


def say(text: str) -> None:
    """Tell the person something that is not the command's output."""
    print(clean_lines(text), file=sys.stderr, flush=True)


def say_error(error: DulyError) -> None:
    """Tell the person what went wrong and what to do about it."""
    say(f"duly: {error.message}")
    match error:
        case Unreachable():
            say("Is it running? `duly up` starts it here; DULY_URL names one that runs elsewhere.")
        case Unauthenticated():
            say("DULY_KEY holds the key; on the machine of `duly up` it is in admin.key.")
