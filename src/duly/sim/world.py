"""A world in which time passes only when something happens.

Events are ordered by time and then by the order in which they were planned. Nothing here is random:
dice belong to those who throw them, each with a seed of its own.
"""

import heapq
from collections.abc import Callable
from math import inf
from typing import Any

Handler = Callable[[Any], None]


class World:
    """The clock, and the list of events to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned = 0
        self._coming: list[tuple[float, int, Handler, Any]] = []

    @property
    def next_at(self) -> float:
        """Return when the next event happens; infinity if none is planned."""
        return self._coming[0][0] if self._coming else inf

    def at(self, time: float, handler: Handler, subject: Any) -> None:
        """Call `handler` with `subject` at a time."""
        self._planned += 1
        heapq.heappush(self._coming, (time, self._planned, handler, subject))

    def advance(self, until: float) -> int:
        """Let everything happen that is due by `until`; return how many events there were."""
        coming, count = self._coming, 0
        while coming and coming[0][0] <= until:
            self.now, _, handler, subject = heapq.heappop(coming)
            handler(subject)
            count += 1
        self.now = until
        return count
