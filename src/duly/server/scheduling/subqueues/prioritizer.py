"""Keeps an index of the subqueues that have waiting tasks, and selects the window of a round.

The index is fed by hints from submits and finishes, and recounted from the database about every
second, so that a lost hint only costs time. A round selects the subqueues whose turn it is
(`duly.policy.fairness.turns`); while only one tenant has waiting tasks, those with the earliest
start_by, round-robin where more of them share a second than a round considers. It reads as many
tasks of each as may come into the window. The window is no larger than the free capacity: most
rounds start a few tasks in place of a few that have ended, however many wait.

Limits of tenants apply before anything is read: of a subqueue whose tenant is at its limits nothing
is read, and of the others little more than may start.

Of the shapes that fit nowhere now, only the hold candidates are read, and cached for a second: the
few tasks for which free capacity may have to be held.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import closing
from datetime import datetime, timedelta
from math import inf

from duly import clock
from duly.config import SchedulingSettings
from duly.policy.budget.limits import Budget
from duly.policy.fairness.recent_use import UseOrder
from duly.policy.fairness.turns import Shares, SubqueueKey, Turn
from duly.policy.queueing import Order, rank
from duly.server.duty_cycle import DutyCycle
from duly.server.scheduling.slot_counter import FITS_LATER, FITS_NEVER
from duly.server.scheduling.subqueues.cursors import Cursors
from duly.server.scheduling.subqueues.just_stored import JustStored
from duly.server.scheduling.subqueues.ready_queues import ReadyQueues
from duly.server.scheduling.subqueues.window_reader import WindowReader
from duly.store.database import Connection
from duly.store.tasks import subqueues
from duly.store.tasks.subqueues import Head, HeadRange

RECOUNT_INTERVAL = timedelta(seconds=1)
MAX_RECOUNT_INTERVAL = timedelta(seconds=5)
RECOUNT_DUTY_DIVISOR = 100
"""Recounts take at most 1/100 of the time: hints report most changes."""
MAX_HOLD_SUBQUEUES = 30
MAX_HOLD_TASKS_PER_SUBQUEUE = 8
MIN_SUBQUEUES_PER_ROUND = 32
"""Selected however little capacity is free: some may turn out to be empty."""
TASKS_PER_SPARE_SUBQUEUE = 8
"""One spare subqueue is selected for so many tasks: nearly all subqueues have one."""

SUBQUEUES_PER_TENANT = 4
"""Selected at most of a tenant whose turn comes by its recent use, so that others follow."""

MAX_URGENT_SUBQUEUES = 32
"""Examined for urgent tasks that may use the headroom."""


class Prioritizer:
    """Indexes the subqueues that may have waiting tasks, and selects windows from them."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._ready_queues = ReadyQueues()
        self._just_stored = JustStored()
        self._cursors = Cursors()
        self._use_order = UseOrder()
        self._recount_cycle = DutyCycle(
            RECOUNT_INTERVAL, MAX_RECOUNT_INTERVAL, RECOUNT_DUTY_DIVISOR
        )
        self._selected: dict[SubqueueKey, datetime] = {}
        """The subqueues of the last round."""
        self._is_all_selected = True
        """Whether the last round left no subqueue out."""
        self._last_served: SubqueueKey | None = None
        """Where the round-robin is; the subqueues after it follow."""
        self._reader: WindowReader | None = None
        """The reader of the last window, until `advance_past`."""
        self.used_just_stored = False
        """Whether the last window has tasks that were not read, and may be gone."""
        self.has_more = False
        """Whether more tasks may wait than were in the last window."""
        self._hold_candidates: list[Head] = []
        self._hold_candidates_read_at = float("-inf")

    def mark_ready(self, start_bys: Iterable[tuple[SubqueueKey, datetime]]) -> None:
        """Index subqueues into which tasks may have come, none before the given start_by."""
        for key, start_by in start_bys:
            self._just_stored.invalidate(key)
            self._cursors.handle_arrival(key, (start_by,))
            self._mark_ready(key, start_by)

    def add_stored(self, heads: Iterable[Head]) -> None:
        """Index the subqueues of tasks that were just stored; one that was empty is not read."""
        for head in heads:
            key = head.tenant_id, head.shape_id
            is_new = key not in self._ready_queues and key not in self._selected
            self._just_stored.add(key, head, is_new=is_new)
            self._cursors.handle_arrival(key, rank(head))
            self._mark_ready(key, head.start_by)

    def _mark_ready(self, key: SubqueueKey, start_by: datetime) -> None:
        if self._ready_queues.mark_ready(key, start_by):
            self._hold_candidates_read_at = float("-inf")

    def request_recount(self) -> None:
        """Have the next round count the subqueues in the database."""
        self._recount_cycle.make_due()
        self._reader = None

    def skip_selected(self) -> bool:
        """Leave the last round's subqueues out until the next recount; False if all were selected.

        For a round of which nothing could be placed: the subqueues behind must be served.
        """
        if self._is_all_selected:
            return False
        self.skip_subqueues(self._selected)
        return True

    def skip_subqueues(self, keys: Iterable[SubqueueKey]) -> None:
        """Leave subqueues out until the next recount.

        For subqueues of a limited tenant that came first and could not be placed: its subqueues
        behind must be served.
        """
        for key in keys:
            self._ready_queues.discard(key)
            self._just_stored.disable()

    async def waiting_shapes(self, conn: Connection) -> Sequence[int]:
        """Return the shapes of waiting tasks, after a recount if that is due."""
        if self._recount_cycle.is_due:
            with self._recount_cycle.step():
                # A hint that arrives meanwhile may be about a task that the count has missed.
                self._ready_queues = ReadyQueues()
                self._just_stored.disable()
                self._cursors.clear()
                counted = ReadyQueues(await subqueues.read_nonempty(conn), self._last_served)
            for key, start_by in self._ready_queues.items():
                counted.mark_ready(key, start_by)
            self._ready_queues = counted
            self._just_stored.enable()
        return self._ready_queues.shapes()

    @property
    def is_empty(self) -> bool:
        """Return True if no subqueue is known to have waiting tasks."""
        return self._ready_queues.is_empty

    @property
    def tenants(self) -> set[int]:
        """Return the tenants that may have waiting tasks."""
        return self._ready_queues.tenants

    def keys_of_shapes(self, shapes: Set[int]) -> list[SubqueueKey]:
        """Return the subqueues of some shapes that may have waiting tasks."""
        return self._ready_queues.keys_of_shapes(shapes)

    @property
    def shapes_by_tenant(self) -> Mapping[int, Set[int]]:
        """Return the shapes of every tenant's waiting tasks, except where it is at its limits."""
        return self._ready_queues.shapes_by_tenant()

    def is_postponed(self, key: SubqueueKey, order: Order) -> bool:
        """Return True if all tasks of a subqueue wait for the end of peak time."""
        return order.precedence(key[1], self._ready_queues.start_by(key)) is None

    def urgent_shapes(
        self, slots: Mapping[int, int], budget: Budget, order: Order, shares: Shares | None
    ) -> set[int]:
        """Return the shapes of urgent tasks to which their tenants are entitled.

        Urgent tasks come first, so that only the first subqueues are examined.
        """
        shapes = [shape for shape, count in slots.items() if count >= FITS_LATER]
        accepts = None if shares is None else shares.is_entitled
        first = self._ready_queues.peek(shapes, MAX_URGENT_SUBQUEUES, budget, order, accepts)
        return {shape for (_, shape), start_by in first.items() if order.is_urgent(shape, start_by)}

    async def select_window(
        self,
        conn: Connection,
        slots: Mapping[int, int],
        budget: Budget,
        order: Order,
        shares: Shares | None = None,
    ) -> Sequence[Turn[Head]]:
        """Return the first tasks among those whose shape fits on a node now, within the `budget`.

        `slots` is how many tasks of each shape fit, or `FITS_LATER`, or `FITS_NEVER`. A shape that
        is not in it was added just now, and waits for the next round. Without `shares`, tenants are
        not told apart. Hold candidates of the shapes that fit later are returned with the tasks,
        but only if any shape fits: with no capacity free, there is nothing to hold.
        """
        fitting = [shape for shape, count in slots.items() if count > FITS_LATER]
        size = min(self._settings.window, sum(slots[shape] for shape in fitting))
        # Popped before the read: a subqueue that is marked ready meanwhile must not be dropped
        # because the read did not see its task yet.
        selected, following = self._select_subqueues(fitting, size, budget, order, shares)
        cursors = self._cursors.start_round()
        self._reader = None
        if not selected:
            return []
        cached = self._just_stored.pop_all()
        try:
            candidates = await self._read_hold_candidates(conn, slots, selected, budget, order)
            reader = WindowReader(
                selected, following, cached, cursors, slots, budget, order, shares, candidates
            )
            self.used_just_stored = bool(reader.heads)
            window = await reader.read_window(conn, size)
        except BaseException:
            self._recount_cycle.make_due()
            raise
        self._reader = reader
        self.has_more = not self._is_all_selected or len(window) >= size
        for key in reversed(selected):
            if heads := reader.heads[key]:
                self._ready_queues.mark_ready(key, heads[0].start_by, at_front=True)
        return window

    def _select_subqueues(
        self,
        shapes: Sequence[int],
        size: int,
        budget: Budget,
        order: Order,
        shares: Shares | None,
    ) -> tuple[dict[SubqueueKey, datetime], Mapping[SubqueueKey, datetime]]:
        """Pop the subqueues for a window; return them, and the first that is left out."""
        queue_order = order if order.has_precedence else None
        count = min(
            self._settings.window,
            max(size + size // TASKS_PER_SPARE_SUBQUEUE, MIN_SUBQUEUES_PER_ROUND),
        )
        self._ready_queues.unpark(budget)
        following: Mapping[SubqueueKey, datetime]
        if shares is None:
            self._selected = self._ready_queues.pop(shapes, count, budget, queue_order)
            following = self._ready_queues.peek(shapes, 1, budget, queue_order)
            self._is_all_selected = not following
        else:
            following = self._select_fairly(set(shapes), count, budget, order, shares)
            self._is_all_selected = not self._ready_queues.peek(shapes, 1, budget, queue_order)
        self.has_more = not self._is_all_selected
        return dict(self._selected), following

    def _select_fairly(
        self, shapes: Set[int], count: int, budget: Budget, order: Order, shares: Shares
    ) -> Mapping[SubqueueKey, datetime]:
        """Pop subqueues with entitled tasks, then those of the tenants lowest in recent use.

        Returns the first subqueue with an entitled task that is left out.
        """
        ready = self._ready_queues
        queue_order = order if order.has_precedence else None
        small = [shape for shape in shapes if shares.may_entitle(shape)]
        self._selected = ready.pop(small, count, budget, queue_order, shares.is_entitled)
        if len(self._selected) == count:
            return ready.peek(small, 1, budget, queue_order, shares.is_entitled)
        shapes_of = ready.shapes_by_tenant()

        def use_of(tenant: int) -> float | None:
            if tenant not in shapes_of:
                return None
            fitting = shapes_of[tenant] & shapes
            return shares.use_per_weight(tenant, fitting) if fitting else inf

        self._use_order.add(ready.new_tenants)
        ready.new_tenants.clear()
        with closing(self._use_order.lowest_first(use_of, shares.now)) as tenants:
            for tenant in tenants:
                keys = shares.by_user(ready.keys_of_tenant(tenant, shapes, queue_order))
                left = count - len(self._selected)
                self._selected |= ready.pop_keys(keys[: min(left, SUBQUEUES_PER_TENANT)], budget)
                if len(self._selected) >= count:
                    break
        return {}

    def advance_past(self, leased: Set[int]) -> None:
        """Move the cursors past the leased tasks, and their subqueues to the back of their second.

        Only for a round whose placements were all leased.
        """
        reader, self._reader = self._reader, None
        if reader is None:
            return
        fully_read = reader.fully_read
        for key, heads in reader.heads.items():
            unleased = next((head for head in heads if head.id not in leased), None)
            has_arrivals = self._cursors.has_arrivals(key)
            if unleased is None and key in fully_read and not has_arrivals:
                self._ready_queues.discard(key)
                self._selected.pop(key, None)
            elif heads:
                first = unleased or heads[-1]
                self._cursors.advance(key, first)
                if first is not heads[0] or unleased is None:
                    start_by = heads[0].start_by if has_arrivals else first.start_by
                    self._ready_queues.move_to_back(key, start_by)
                    self._last_served = key

    async def _read_hold_candidates(
        self,
        conn: Connection,
        slots: Mapping[int, int],
        selected: Mapping[SubqueueKey, datetime],
        budget: Budget,
        order: Order,
    ) -> Mapping[SubqueueKey, list[Head]]:
        """Return the first task of each tenant that fits later and for which capacity may be held.

        No tenant gets more than one hold.
        """
        age = clock.monotonic() - self._hold_candidates_read_at
        is_stale = age >= RECOUNT_INTERVAL.total_seconds()
        if is_stale or any(
            (head.tenant_id, head.shape_id) in selected for head in self._hold_candidates
        ):
            shapes = [shape for shape, count in slots.items() if count == FITS_LATER]
            first = self._ready_queues.peek(shapes, MAX_HOLD_SUBQUEUES, budget, order)
            requests = {
                key: HeadRange(start_by, MAX_HOLD_TASKS_PER_SUBQUEUE)
                for key, start_by in first.items()
            }
            self._hold_candidates_read_at = clock.monotonic()
            self._hold_candidates = [
                head
                for head in (await subqueues.read_heads(conn, requests) if requests else [])
                if order.qualifies_for_hold(head)
            ]
        first_of_tenant: dict[int, Head] = {}
        for head in sorted(self._hold_candidates, key=order.key):
            # Since they were read, the last node may have left, or the queue was paused.
            if slots.get(head.shape_id, FITS_NEVER) >= FITS_LATER:
                first_of_tenant.setdefault(head.tenant_id, head)
        return {(head.tenant_id, head.shape_id): [head] for head in first_of_tenant.values()}
