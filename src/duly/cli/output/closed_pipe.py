"""Ends the output of a command whose reader is gone, or whose output cannot be written.

A module of its own, because it is also used after Ctrl-C, when nothing large should be imported.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a file or device behind stdout."""


def discard_output() -> None:
    """Redirect stdout to /dev/null, because nobody reads it any more."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


def is_unwritable(error: OSError) -> bool:
    """Return True if the error is that stdout cannot be written, as on a full disk."""
    return error.errno in UNWRITABLE


def describe_unwritable(error: OSError) -> str:
    """Return a sentence about output that could not be written."""
    return f"The output cannot be written: {error.strerror}."


@contextmanager
def telling_if_unwritable(text: str) -> Iterator[None]:
    """Print `text` on stderr if the output of the block cannot be written."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if is_unwritable(error):
            print(text, file=sys.stderr, flush=True)
        raise
