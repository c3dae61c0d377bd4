"""Reads the heads of the subqueues that a round considers, and merges them into the window.

A few tasks of each subqueue are read at first. If all of them come into the window, the subqueue
may have more that do, and is read again, four times as far. The further, the fewer they are.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from itertools import chain

from duly.policy import queueing
from duly.policy.budget.limits import Budget
from duly.policy.fairness import turns
from duly.policy.fairness.turns import Shares, SubqueueKey, Turn
from duly.policy.queueing import Order
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from duly.store.database import Connection
from duly.store.tasks import subqueues
from duly.store.tasks.subqueues import Head, HeadRange

REREAD_FACTOR = 4
"""How many times as many tasks are read of a subqueue that is read again."""


class WindowReader:
    """The subqueues of one round, the tasks read of them, and the limits of what may start."""

    def __init__(
        self,
        selected: Mapping[SubqueueKey, datetime],
        following: Mapping[SubqueueKey, datetime],
        cached: Mapping[SubqueueKey, list[Head]],
        cursors: Mapping[SubqueueKey, Head],
        slots: Mapping[int, int],
        budget: Budget,
        order: Order,
        shares: Shares | None,
        hold_candidates: Mapping[SubqueueKey, list[Head]],
    ) -> None:
        """Consider the `selected` subqueues, each from its start_by on.

        `cached` has all tasks of its subqueues, which are not read. `slots` is how many tasks of
        each shape fit on the nodes now. `following` is the first subqueue that is not selected: the
        window ends where that begins, unless its start_by is not known. Without `shares` there is
        one tenant. `hold_candidates` are tasks that fit later, and take no place in the window.
        """
        self._selected = selected
        self._cursors = cursors
        self._slots = slots
        self._budget = budget
        self._order = order
        self._shares = shares
        self._hold_candidates = hold_candidates
        has_horizon = UNKNOWN_START_BY not in following.values()
        self._horizon = order.horizon(following) if has_horizon else None
        self.heads = {key: cached[key] for key in selected if key in cached}
        """The first tasks of each subqueue, by rank."""
        self._requested: dict[SubqueueKey, int] = {}
        """How many tasks were asked for of each subqueue that was read."""

    async def read_window(self, conn: Connection, size: int) -> list[Turn[Head]]:
        """Return the first `size` tasks of all subqueues that are within the budget.

        Hold candidates come on top, each in its turn.
        """
        unread: Collection[SubqueueKey] = [key for key in self._selected if key not in self.heads]
        tasks_each = -(-size // len(self._selected)) + 1
        while True:
            if unread:
                await self._read(conn, unread, tasks_each)
            budget = self._budget.copy()
            window = self._take(size, budget)
            unread = self._used_up(window, size)
            if not unread:
                self._budget.update(budget)
                return window

    def _used_up(self, window: Sequence[Turn[Head]], size: int) -> list[SubqueueKey]:
        """Return the subqueues of which all that was read is in the window, and more may be."""
        if not (truncated := self._truncated(size)):
            return []
        chosen = Counter((task.tenant_id, task.shape_id) for task, _ in window)
        return [key for key in truncated if chosen[key] == self._requested[key]]

    def _take(self, size: int, budget: Budget) -> list[Turn[Head]]:
        """Return the window of what was read so far, and charge the budget and the shares."""
        candidates = self._candidates()
        size += sum(map(len, self._hold_candidates.values()))
        if self._shares is None:
            tasks = chain.from_iterable(candidates.values())
            window = queueing.window(tasks, size, self._order, budget)
            return [Turn(head, is_entitled=True) for head in window]
        self._shares.reset()
        return turns.take(candidates, size, self._order, self._shares, self._order.gate(budget))

    @property
    def fully_read(self) -> Set[SubqueueKey]:
        """Return the subqueues of which all tasks are in `heads`."""
        return {
            key
            for key, heads in self.heads.items()
            if key not in self._requested or len(heads) < self._requested[key]
        }

    async def _read(self, conn: Connection, keys: Collection[SubqueueKey], tasks_each: int) -> None:
        for key in keys:
            requested = max(tasks_each, REREAD_FACTOR * self._requested.get(key, 0))
            self._requested[key] = min(requested, self._max_startable(key) + 1)
            self.heads[key] = []
        requests = {
            key: HeadRange(self._selected[key], self._requested[key], self._cursors.get(key))
            for key in keys
        }
        for head in await subqueues.read_heads(conn, requests):
            self.heads[head.tenant_id, head.shape_id].append(head)

    def _max_startable(self, key: SubqueueKey) -> int:
        return min(self._slots[key[1]], self._budget.room(*key))

    def _candidates(self) -> Mapping[SubqueueKey, Sequence[Head]]:
        """Return all tasks that may come into the window.

        A task that was changed meanwhile may be in two subqueues; only the lease can tell which is
        current, and it must not be leased twice.
        """
        candidates = {key: self._within_horizon(heads) for key, heads in self.heads.items()}
        candidates.update(self._hold_candidates)
        ids = [head.id for heads in candidates.values() for head in heads]
        if len(set(ids)) == len(ids):
            return candidates
        keys = {head.id: key for key, heads in candidates.items() for head in heads}
        return {
            key: [head for head in heads if keys[head.id] == key]
            for key, heads in candidates.items()
        }

    def _within_horizon(self, heads: Sequence[Head]) -> Sequence[Head]:
        key = self._order.key
        if self._horizon is None or not heads or key(heads[-1]) <= self._horizon:
            return heads
        return [head for head in heads if key(head) <= self._horizon]

    def _truncated(self, size: int) -> list[SubqueueKey]:
        """Return the subqueues that may have more tasks for the window than were read."""
        return [
            key
            for key, requested in self._requested.items()
            if requested == len(self.heads[key]) and requested < min(size, self._max_startable(key))
        ]
