"""A cursor for each subqueue: the task that the next round reads on from.

Tasks that have left a subqueue stay in the index until they are vacuumed, which no transaction with
an old snapshot lets happen; without a cursor, every round would walk over them. A cursor is valid
until a task that ranks before it comes into the subqueue.
"""

from collections.abc import Mapping
from datetime import datetime

from duly.policy.fairness.turns import SubqueueKey
from duly.policy.queueing import Rank, rank
from duly.store.tasks.subqueues import Head

Position = tuple[datetime] | Rank
"""A position in a subqueue: the rank of a task, or a start_by, which is before all tasks of it."""


class Cursors:
    """One task of each subqueue before which all have gone; the task itself may have gone, too."""

    def __init__(self) -> None:
        self._cursors: dict[SubqueueKey, Head] = {}
        self._first_arrivals: dict[SubqueueKey, Position] = {}
        """The first position at which a task may have come in since `start_round`."""

    def handle_arrival(self, key: SubqueueKey, position: Position) -> None:
        """Invalidate the cursor if a task may have come in before it."""
        if (head := self._cursors.get(key)) is not None and position < rank(head):
            del self._cursors[key]
        self._first_arrivals[key] = min(position, self._first_arrivals.get(key, position))

    def start_round(self) -> Mapping[SubqueueKey, Head]:
        """Return the cursors for a round; it may miss what arrives from now on."""
        self._first_arrivals = {}
        return self._cursors

    def has_arrivals(self, key: SubqueueKey) -> bool:
        """Return True if a task may have come into a subqueue since `start_round`."""
        return key in self._first_arrivals

    def advance(self, key: SubqueueKey, head: Head) -> None:
        """Set the cursor to a task, unless another has come in before it since `start_round`."""
        arrival = self._first_arrivals.get(key)
        if arrival is None or arrival > rank(head):
            self._cursors[key] = head
        else:
            self._cursors.pop(key, None)

    def clear(self) -> None:
        """Read every subqueue from its start again."""
        self._cursors = {}
