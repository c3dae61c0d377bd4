"""Asks for confirmation before something is removed, revoked or cancelled by a filter.

A person at a terminal is asked. A script cannot answer, and silence is no consent, so elsewhere
such a command is refused unless it has `--yes`.
"""

import sys
from typing import Annotated

import typer

from duly.cli.output.text import clean

YesFlag = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask for confirmation; needed without a terminal."),
]


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees; without a terminal to ask at, `--yes` is required."""
    if yes:
        return
    if not can_ask():
        raise typer.BadParameter(
            f"{clean(question)} There is no terminal to ask at. Give --yes to confirm."
        )
    ask(question)


def ask(question: str) -> None:
    """Ask at the terminal; any answer but yes ends the command."""
    typer.confirm(clean(question), abort=True, err=True)


def can_ask() -> bool:
    """Return True if a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()
