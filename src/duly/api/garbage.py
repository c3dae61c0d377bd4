"""Keeps Python's collector away from a large request while it is answered.

What a request is read into has no cycles, and goes with the answer. Meanwhile every full
collection would pass all of it: a quarter of a second for 100,000 tasks, again and again, in
which nobody else is answered.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 2**20
"""Bytes of a body from which on it matters."""


@contextmanager
def left_alone(size: int) -> Iterator[None]:
    """Collect nothing while the block lasts, for a body of so many bytes.

    Of several at once the first decides, so it is never put off for longer than one request.
    """
    if size < LARGE or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
