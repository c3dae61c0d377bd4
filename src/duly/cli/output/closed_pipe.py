"""Ends the output of a command whose reader is gone.

A module of its own, because it is also used after Ctrl-C, when nothing large should be imported.
"""

import os
import sys


def discard_output() -> None:
    """Redirect stdout to /dev/null, because nobody reads it any more."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
