"""Work that is done in steps: whoever runs it may do something else between two of them.

A pure function over a large graph takes long enough for others to notice. Written as a
generator it stays pure, and the server gives others their turn wherever it yields.
"""

from collections.abc import Generator
from typing import TypeVar

AT_ONCE = 5000
"""How many tasks and edges are looked at in one step: a few milliseconds."""

T = TypeVar("T")
Steps = Generator[None, None, T]


class Pace:
    """Tells when a step is over, by how much was done in it."""

    def __init__(self) -> None:
        self._done = 0

    def is_over(self, done: int = 1) -> bool:
        """Say whether, with `done` more, it is time for others."""
        self._done += done
        if self._done < AT_ONCE:
            return False
        self._done = 0
        return True


def finish(steps: Steps[T]) -> T:
    """Do all of the steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
