"""The entry point of `duly`: Ctrl-C ends it without a traceback, whatever it is doing.

While a command runs, Ctrl-C raises KeyboardInterrupt. Before that, while modules are imported, and
after it, while the interpreter shuts down, there is nothing to undo and nobody to catch an
exception, so the process exits at once.
"""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""The exit code of a shell for a command that was ended by SIGINT."""


def main() -> None:
    """Run the command line."""
    handler = signal.getsignal(signal.SIGINT)
    _exit_on_interrupt()
    try:
        from duly.cli.main import main as run

        signal.signal(signal.SIGINT, handler)
        try:
            run()
        finally:
            _exit_on_interrupt()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _exit_on_interrupt() -> None:
    # A command in the background of a script is started with SIGINT ignored, and stays so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
