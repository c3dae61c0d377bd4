"""An index of the subqueues that may have waiting tasks, ordered by start_by.

A subqueue holds the waiting tasks of one tenant and one shape. The index knows of each subqueue
only a lower bound of the start_by of its first task. The subqueues with the earliest start_by come
first; those with equal start_by are served round-robin. Popping costs in proportion to what is
popped, not to how many subqueues there are.

A subqueue whose tenant is at its limits is parked together with all others that wait for the same
cause. Parked subqueues cost nothing until the cause has changed. Of a tenant that may start a few
tasks, only as many subqueues are unparked as those tasks may come from.

Decision: docs/adr/0010-scheduling-rounds.md.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush, heappushpop
from typing import Protocol

from duly.policy.fairness.turns import SubqueueKey
from duly.server.scheduling.subqueues.time_buckets import TimeBuckets

UNKNOWN_START_BY = datetime.min.replace(tzinfo=UTC)
"""The start_by of a subqueue of which only is known that it may have tasks; sorts first."""
SPARE_SUBQUEUES_PER_TENANT = 8
"""Subqueues of a tenant popped beyond the tasks that it may start: some turn out to be empty."""
ParkedEntry = tuple[datetime, SubqueueKey]
Candidate = tuple[int, datetime, int, SubqueueKey]
"""A subqueue: the precedence of its queue, start_by and sequence number, then its key."""
NO_SUBQUEUES = TimeBuckets()
EXAMINED_PER_SUBQUEUE = 2
"""How many subqueues are examined for each that is popped, if only some are accepted."""


class Gate(Protocol):
    """Decides which subqueues may start tasks."""

    def cause(self, tenant: int, shape_id: int) -> Hashable | None:
        """Return what blocks a subqueue, equal for all that it blocks together; None if nothing."""

    def tenant_room(self, tenant: int, shape_id: int) -> int:
        """Return how many tasks of a shape its tenant may start."""


class QueueOrder(Protocol):
    """Decides in which order subqueues of different queues are served."""

    def precedence(self, shape_id: int, start_by: datetime) -> int | None:
        """Return the precedence of a subqueue, the lowest first; None if it must not start yet."""


class ReadyQueues:
    """The keys of subqueues that may have waiting tasks, each with a lower bound of start_by."""

    def __init__(
        self,
        start_bys: Mapping[SubqueueKey, datetime] | None = None,
        last_served: SubqueueKey | None = None,
    ) -> None:
        """Index `start_bys`; the round-robin goes on with the key after `last_served`."""
        self._ready: dict[SubqueueKey, tuple[datetime, int]] = {}
        """The start_by and the sequence number of each subqueue that is not parked."""
        self._by_shape: dict[int, TimeBuckets] = {}
        """The same by shape; an entry whose sequence number is not current is stale."""
        self._parked: dict[SubqueueKey, tuple[datetime, Hashable]] = {}
        """The start_by of each parked subqueue, and the cause that it waits for."""
        self._parked_by_cause: dict[Hashable, list[ParkedEntry]] = {}
        """The same as a heap for each cause; an entry that differs from `_parked` is stale."""
        self._parked_shapes: Counter[int] = Counter()
        self._shapes_of: dict[int, set[int]] = {}
        """The shapes of the subqueues that are not parked, by tenant."""
        self.new_tenants: set[int] = set()
        """The tenants that had no such subqueue before; whoever reads it clears it."""
        self.tenants: set[int] = set()
        """The tenants of all subqueues that were ever added."""
        self._front_sequence = self._back_sequence = 0
        """The sequence numbers last given to a subqueue at the front and at the back."""
        already_served = []
        for key, start_by in (start_bys or {}).items():
            if last_served is None or key > last_served:
                self.mark_ready(key, start_by)
            else:
                already_served.append((key, start_by))
        for key, start_by in already_served:
            self.mark_ready(key, start_by)

    def mark_ready(self, key: SubqueueKey, start_by: datetime, *, at_front: bool = False) -> bool:
        """Add a subqueue, or move it up if `start_by` is earlier; return whether that changed it.

        It goes behind the other subqueues of that second, or `at_front` of them.
        """
        if key in self._parked:
            # It stays parked: every round checks the causes again.
            self._park(self._parked[key][1], start_by, key)
            return False
        current = self._ready.get(key)
        if current is not None and start_by >= current[0]:
            return False
        if at_front:
            sequence = self._front_sequence = self._front_sequence - 1
        else:
            sequence = self._back_sequence = self._back_sequence + 1
        self._ready[key] = start_by, sequence
        tenant, shape = key
        if (shapes := self._shapes_of.get(tenant)) is None:
            shapes = self._shapes_of[tenant] = set()
            self.new_tenants.add(tenant)
        shapes.add(shape)
        if (buckets := self._by_shape.get(shape)) is None:
            buckets = self._by_shape[shape] = TimeBuckets()
        buckets.push(start_by, sequence, tenant)
        self.tenants.add(tenant)
        return True

    @property
    def is_empty(self) -> bool:
        """Return True if no subqueue is indexed, not even a parked one."""
        return not self._ready and not self._parked

    def __len__(self) -> int:
        """Return the number of subqueues that are not parked."""
        return len(self._ready)

    def __contains__(self, key: SubqueueKey) -> bool:
        """Return True if a subqueue is indexed, parked or not."""
        return key in self._ready or key in self._parked

    def start_by(self, key: SubqueueKey) -> datetime:
        """Return the lower bound of the start_by of a subqueue that is not parked."""
        return self._ready[key][0]

    def items(self) -> Iterable[tuple[SubqueueKey, datetime]]:
        """Return the key and the start_by of every subqueue that is not parked."""
        return ((key, start_by) for key, (start_by, _) in self._ready.items())

    def shapes(self) -> list[int]:
        """Return the shapes of all subqueues, parked ones included."""
        ready = [shape for shape in list(self._by_shape) if self._peek_shape(shape)]
        if not self._parked_shapes:
            return ready
        return list({*ready, *self._parked_shapes})

    def keys_of_shapes(self, shapes: Set[int]) -> list[SubqueueKey]:
        """Return the subqueues of some shapes, parked ones included."""
        ready = {
            (tenant, shape)
            for shape in shapes
            for tenant in self._by_shape.get(shape, NO_SUBQUEUES).tenants()
            if (tenant, shape) in self._ready
        }
        if not self._parked_shapes.keys() & shapes:
            return sorted(ready)
        return sorted(ready | {key for key in self._parked if key[1] in shapes})

    def pop(
        self,
        shapes: Iterable[int],
        count: int,
        gate: Gate | None = None,
        order: QueueOrder | None = None,
        accepts: Callable[[SubqueueKey], bool] | None = None,
    ) -> dict[SubqueueKey, datetime]:
        """Remove and return the first `count` subqueues of some shapes that may start tasks.

        Those that the `gate` blocks are parked on the way. If only some are to be returned, a
        bounded number is examined.
        """
        candidates = [
            candidate
            for shape in shapes
            if (candidate := self._candidate(shape, order)) is not None
        ]
        heapify(candidates)
        popped: dict[SubqueueKey, datetime] = {}
        popped_of_tenant: dict[int, int] = {}
        left_out: list[tuple[SubqueueKey, datetime]] = []
        first = heappop(candidates) if candidates else None
        while first is not None and len(popped) < count:
            _, start_by, _, key = first
            self._by_shape[key[1]].pop()
            self._remove(key)
            if accepts is not None and not accepts(key):
                left_out.append((key, start_by))
                if len(left_out) >= EXAMINED_PER_SUBQUEUE * count:
                    break
            elif (cause := _cause_to_park(gate, key, popped_of_tenant)) is None:
                popped[key] = start_by
            else:
                self._park(cause, start_by, key)
            # The next one of this shape is mostly the first again: heappushpop returns it at once.
            if (following := self._candidate(key[1], order)) is not None:
                first = heappushpop(candidates, following)
            else:
                first = heappop(candidates) if candidates else None
        for key, start_by in reversed(left_out):
            self.mark_ready(key, start_by, at_front=True)
        return popped

    def pop_keys(
        self, keys: Iterable[SubqueueKey], gate: Gate | None = None
    ) -> dict[SubqueueKey, datetime]:
        """Remove and return those of some subqueues that may start tasks; the others are parked."""
        popped: dict[SubqueueKey, datetime] = {}
        popped_of_tenant: dict[int, int] = {}
        for key in keys:
            start_by = self._ready[key][0]
            self._remove(key)
            if (cause := _cause_to_park(gate, key, popped_of_tenant)) is None:
                popped[key] = start_by
            else:
                self._park(cause, start_by, key)
        return popped

    def keys_of_tenant(
        self, tenant: int, shapes: Set[int], order: QueueOrder | None = None
    ) -> list[SubqueueKey]:
        """Return a tenant's subqueues of some shapes that may start tasks, the first ones first."""
        candidates: list[Candidate] = []
        for shape in self._shapes_of.get(tenant, frozenset()) & shapes:
            start_by, sequence = self._ready[tenant, shape]
            turn = 0 if order is None else order.precedence(shape, start_by)
            if turn is not None:
                candidates.append((turn, start_by, sequence, (tenant, shape)))
        return [key for *_, key in sorted(candidates)]

    def shapes_by_tenant(self) -> Mapping[int, Set[int]]:
        """Return the shapes of every tenant's subqueues that are not parked."""
        return self._shapes_of

    def peek(
        self,
        shapes: Iterable[int],
        count: int,
        gate: Gate | None = None,
        order: QueueOrder | None = None,
        accepts: Callable[[SubqueueKey], bool] | None = None,
    ) -> dict[SubqueueKey, datetime]:
        """Return the subqueues that `pop` would return, without removing them."""
        popped = self.pop(shapes, count, gate, order, accepts)
        for key, start_by in reversed(popped.items()):
            self.mark_ready(key, start_by, at_front=True)
        return popped

    def unpark(self, gate: Gate) -> None:
        """Make parked subqueues ready whose cause is gone, of each tenant no more than it needs."""
        for cause in list(self._parked_by_cause):
            heap = self._parked_by_cause[cause]
            unparked = 0
            while heap:
                start_by, key = heap[0]
                if self._parked.get(key) == (start_by, cause):
                    new_cause = gate.cause(*key)
                    if new_cause == cause or (
                        unparked == gate.tenant_room(*key) + SPARE_SUBQUEUES_PER_TENANT
                    ):
                        break
                    self._unpark(key, start_by, new_cause)
                    unparked += new_cause is None
                heappop(heap)
            if not heap:
                del self._parked_by_cause[cause]

    def _unpark(self, key: SubqueueKey, start_by: datetime, new_cause: Hashable | None) -> None:
        """Make a parked subqueue ready, or park it again for another cause."""
        del self._parked[key]
        self._parked_shapes[key[1]] -= 1
        if not self._parked_shapes[key[1]]:
            del self._parked_shapes[key[1]]
        if new_cause is None:
            self.mark_ready(key, start_by)
        else:
            self._park(new_cause, start_by, key)

    def move_to_back(self, key: SubqueueKey, start_by: datetime) -> None:
        """Set the start_by of a subqueue, and put it behind the others of that second."""
        if key in self._ready:
            self._remove(key)
            self.mark_ready(key, start_by)

    def discard(self, key: SubqueueKey) -> None:
        """Remove a subqueue until it is marked ready again."""
        if key in self._ready:
            self._remove(key)

    def _remove(self, key: SubqueueKey) -> None:
        del self._ready[key]
        tenant, shape = key
        shapes = self._shapes_of[tenant]
        shapes.remove(shape)
        if not shapes:
            del self._shapes_of[tenant]

    def _park(self, cause: Hashable, start_by: datetime, key: SubqueueKey) -> None:
        current = self._parked.get(key)
        if current is None:
            self._parked_shapes[key[1]] += 1
        elif current[0] <= start_by:
            return
        self._parked[key] = start_by, cause
        heappush(self._parked_by_cause.setdefault(cause, []), (start_by, key))

    def _candidate(self, shape: int, order: QueueOrder | None) -> Candidate | None:
        """Return the first subqueue of a shape, unless it must not start yet."""
        if (first := self._peek_shape(shape)) is None:
            return None
        start_by, (sequence, tenant) = first
        turn = 0 if order is None else order.precedence(shape, start_by)
        return None if turn is None else (turn, start_by, sequence, (tenant, shape))

    def _peek_shape(self, shape: int) -> tuple[datetime, tuple[int, int]] | None:
        """Return the first current entry of a shape; stale ones before it are removed."""
        if (buckets := self._by_shape.get(shape)) is None:
            return None
        while (first := buckets.peek()) is not None:
            sequence, tenant = first[1]
            current = self._ready.get((tenant, shape))
            if current is not None and current[1] == sequence:
                return first
            buckets.pop()
        del self._by_shape[shape]
        return None


def _cause_to_park(
    gate: Gate | None, key: SubqueueKey, popped_of_tenant: dict[int, int]
) -> Hashable | None:
    """Return why a subqueue is parked: what blocks it, or its tenant has enough popped already."""
    if gate is None:
        return None
    cause = gate.cause(*key)
    if cause is not None:
        return cause
    tenant = key[0]
    popped = popped_of_tenant[tenant] = popped_of_tenant.get(tenant, 0) + 1
    # Most tenants have a subqueue or two, so that the gate need not be asked.
    if popped <= SPARE_SUBQUEUES_PER_TENANT:
        return None
    return tenant if popped > gate.tenant_room(*key) + SPARE_SUBQUEUES_PER_TENANT else None
