"""Tasks that were just stored into subqueues that were empty: those need not be read.

Once all subqueues have been counted, one of which nothing is known is empty, and what is stored
into it then is all there is in it. That holds until the next round takes it, or until something
comes of which no more is known than its time. A task that has left meanwhile is not leased.
"""

from collections.abc import Mapping

from duly.policy.queueing import rank
from duly.server.lines import Pair
from duly.store.waiting import Head

MAX_TASKS_PER_SUBQUEUE = 16
"""More are read as quickly."""


class JustStored:
    """All tasks of some subqueues, until the next round."""

    def __init__(self) -> None:
        self._heads: dict[Pair, list[Head]] = {}
        self._is_counted = False

    def add(self, pair: Pair, head: Head, *, is_new: bool) -> None:
        """Remember a task that was stored; `is_new` says that nothing was known of its subqueue."""
        if is_new and self._is_counted:
            self._heads.setdefault(pair, [])
        if (heads := self._heads.get(pair)) is not None:
            heads.append(head)
            if len(heads) > MAX_TASKS_PER_SUBQUEUE:
                del self._heads[pair]

    def forget(self, pair: Pair) -> None:
        """Have a subqueue read: something has come into it that was not seen."""
        self._heads.pop(pair, None)

    def doubt(self) -> None:
        """Have everything read until all subqueues have been counted again."""
        self._heads = {}
        self._is_counted = False

    def trust(self) -> None:
        """Take a subqueue of which nothing is known for empty: all were counted."""
        self._is_counted = True

    def take(self) -> Mapping[Pair, list[Head]]:
        """Return what is known by rank, and forget it."""
        heads, self._heads = self._heads, {}
        return {pair: sorted(found, key=rank) for pair, found in heads.items()}
