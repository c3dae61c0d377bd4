"""Prints a list again and again, until it is interrupted."""

import sys
import time
from collections.abc import Callable
from signal import SIGINT

import typer

from duly.cli.exit_codes import SIGNAL_BASE

REFRESH_SECONDS = 2.0
CLEAR_SCREEN = "\x1b[H\x1b[2J"


def watch_list(show: Callable[[], None]) -> None:
    """Call `show` every two seconds; at a terminal each list replaces the previous one."""
    try:
        while True:
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR_SCREEN)
            show()
            sys.stdout.flush()
            time.sleep(REFRESH_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(SIGNAL_BASE + SIGINT) from None
