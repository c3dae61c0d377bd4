"""The flags of lists that have pages, and what is said when there are more."""

from typing import Annotated

import typer

from duly.cli.connect import print_notice

LimitFlag = Annotated[
    int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of items.")
]
CursorFlag = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="The next_cursor of the previous page.")
]


def print_next_cursor(cursor: str | None) -> None:
    """Print to stderr how to get the next page, if there is one."""
    if cursor is not None:
        print_notice(f"There are more. List the next page with --cursor {cursor}.")
