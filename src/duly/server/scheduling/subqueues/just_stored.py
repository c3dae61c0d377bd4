"""Caches the tasks that were just stored into empty subqueues, so that a round need not read them.

Once all subqueues have been counted, one that is not known is empty, and the tasks that are stored
into it from then on are all that it has. The cache of a subqueue is used by the next round, or
dropped when a task comes in of which only the subqueue is known. A cached task may have left its
subqueue meanwhile; the lease finds that out.
"""

from collections.abc import Mapping

from duly.policy.fairness.turns import SubqueueKey
from duly.policy.queueing import rank
from duly.store.tasks.subqueues import Head

MAX_TASKS_PER_SUBQUEUE = 16
"""To read more takes no longer than to cache them."""


class JustStored:
    """All tasks of some subqueues, until the next round."""

    def __init__(self) -> None:
        self._heads: dict[SubqueueKey, list[Head]] = {}
        self._is_enabled = False

    def add(self, key: SubqueueKey, head: Head, *, is_new: bool) -> None:
        """Cache a task that was stored; `is_new` means that its subqueue was not known before."""
        if is_new and self._is_enabled:
            self._heads.setdefault(key, [])
        if (heads := self._heads.get(key)) is not None:
            heads.append(head)
            if len(heads) > MAX_TASKS_PER_SUBQUEUE:
                del self._heads[key]

    def invalidate(self, key: SubqueueKey) -> None:
        """Have a subqueue read: a task has come in that is not in the cache."""
        self._heads.pop(key, None)

    def disable(self) -> None:
        """Drop everything, and cache nothing until `enable`."""
        self._heads = {}
        self._is_enabled = False

    def enable(self) -> None:
        """Cache again: all subqueues were counted, so one that is not known is empty."""
        self._is_enabled = True

    def pop_all(self) -> Mapping[SubqueueKey, list[Head]]:
        """Remove and return the tasks of every cached subqueue, by rank."""
        cached, self._heads = self._heads, {}
        return {key: sorted(heads, key=rank) for key, heads in cached.items()}
