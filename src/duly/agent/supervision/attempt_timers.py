"""Timers of attempts, which do not fire once their attempt has ended."""

import heapq
import itertools
from collections.abc import Callable, Container

Action = Callable[[], None]


class AttemptTimers:
    """A heap of actions by time; timers of ended attempts are dropped by compaction."""

    def __init__(self, alive: Container[int]) -> None:
        self._live_attempts = alive
        self._heap: list[tuple[float, int, int, Action]] = []
        self._order = itertools.count()
        self._compact_at = 1000

    def call_at(self, when: float, attempt: int, action: Action) -> None:
        """Call `action` at `when` if the attempt is still alive."""
        heapq.heappush(self._heap, (when, next(self._order), attempt, action))
        if len(self._heap) > self._compact_at:
            # Most execution caps are still far away when their attempts end.
            self._heap = [timer for timer in self._heap if timer[2] in self._live_attempts]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + 1000

    def next_due(self) -> float:
        """Return when the next timer is due; infinity if there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def run_due(self, now: float) -> None:
        """Call every action that is due."""
        while self._heap and self._heap[0][0] <= now:
            _, _, attempt, action = heapq.heappop(self._heap)
            if attempt in self._live_attempts:
                action()
