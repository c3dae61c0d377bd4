"""Things to be done for an attempt when their time comes, unless it has ended by then."""

import heapq
import itertools
from collections.abc import Callable, Container

Action = Callable[[], None]


class Timers:
    """Actions by time; those of attempts that have ended are dropped now and then."""

    def __init__(self, alive: Container[int]) -> None:
        self._alive = alive
        self._heap: list[tuple[float, int, int, Action]] = []
        self._order = itertools.count()
        self._crowded = 1000

    def at(self, when: float, attempt: int, action: Action) -> None:
        """Do `action` at `when` if the attempt is still there."""
        heapq.heappush(self._heap, (when, next(self._order), attempt, action))
        if len(self._heap) > self._crowded:
            # Most caps are far away when their attempts end.
            self._heap = [timer for timer in self._heap if timer[2] in self._alive]
            heapq.heapify(self._heap)
            self._crowded = 2 * len(self._heap) + 1000

    def next(self) -> float:
        """Return when the next one is due; infinity if there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def run(self, now: float) -> None:
        """Do everything that is due."""
        while self._heap and self._heap[0][0] <= now:
            _, _, attempt, action = heapq.heappop(self._heap)
            if attempt in self._alive:
                action()
