"""Decides the order in which waiting tasks are served.

First by queue: tasks submitted as `urgent`, tasks whose slack has nearly run out, and then by the
level of the queue: occurrences of schedules, everything else, and `off_peak` tasks, with
administrators' queues between them. A task moves up when its slack runs out, whatever its queue.
The slack limit is the same for all tasks, so the earliest start_by goes first among those that
moved up as well. Whether a queue may start tasks at all, `duly.policy.budget.queue_room` decides.

Within a queue tasks are ranked by earliest start_by (to the second), higher priority, longer
remaining path in their graph, shorter expected run time (or cap, if none is known), lower id. This
is the order within a tenant; between tenants, `duly.policy.fairness.turns` decides.

Decision: docs/adr/0024-queue-in-shape.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from typing import Protocol, TypeVar

from duly.model.queues.queue import BUILT_IN_QUEUES, URGENT_LEVEL, Queue, QueueDefinitions
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.budget.limits import Budget
from duly.policy.budget.peak import Postponement
from duly.policy.budget.queue_room import UNLIMITED_ROOM, QueueRoom

OUT_OF_SLACK_PRECEDENCE = URGENT_LEVEL + 1
"""Tasks that must start soon come after those submitted, and billed, as urgent."""


class Rankable(Protocol):
    """The fields of a task that ranking and its tenant's limits depend on."""

    @property
    def id(self) -> int: ...  # noqa: D102
    @property
    def tenant_id(self) -> int: ...  # noqa: D102
    @property
    def shape_id(self) -> int: ...  # noqa: D102
    @property
    def start_by(self) -> datetime: ...  # noqa: D102
    @property
    def priority(self) -> int: ...  # noqa: D102
    @property
    def remaining_path(self) -> int: ...  # noqa: D102
    @property
    def expected_run_time(self) -> timedelta: ...  # noqa: D102


class HoldCandidate(Protocol):
    """The fields of a task that decide whether it qualifies for a hold."""

    @property
    def shape_id(self) -> int: ...  # noqa: D102
    @property
    def start_by(self) -> datetime: ...  # noqa: D102
    @property
    def delay_tolerance(self) -> timedelta: ...  # noqa: D102
    @property
    def losses(self) -> int: ...  # noqa: D102


Task = TypeVar("Task", bound=Rankable)


Rank = tuple[datetime, int, int, timedelta, int]
"""start_by, negated priority, negated remaining path, expected run time, id."""


def rank(task: Rankable) -> Rank:
    """Return the sort key of a task within its queue; the smallest goes first."""
    return task.start_by, -task.priority, -task.remaining_path, task.expected_run_time, task.id


def qualifies_for_hold(task: HoldCandidate, now: datetime) -> bool:
    """Return True if a node should keep room for a task that fits nowhere yet.

    That is from half of its delay tolerance on: the other half is for the room to become free.
    A lost task had started, so it qualifies at once, whatever its tolerance.
    """
    return task.losses > 0 or task.start_by - now <= task.delay_tolerance / 2


def queue_of(stored: str | None, slack: timedelta, urgent_slack: timedelta) -> str:
    """Return the queue that a waiting task is in, with `slack` left until its start_by.

    `stored` is the queue it was submitted to or retried in, or `periodic`; None means `delayable`.
    """
    if slack <= urgent_slack:
        return Queue.URGENT
    return stored or Queue.DELAYABLE


class Order:
    """The order of waiting tasks in one round, and which of them wait for the end of peak time."""

    def __init__(
        self,
        queues: Mapping[int, str],
        shapes: Mapping[int, Shape],
        *,
        now: datetime,
        urgent_slack: timedelta,
        postponement: Postponement | None = None,
        definitions: QueueDefinitions = BUILT_IN_QUEUES,
        room: QueueRoom = UNLIMITED_ROOM,
    ) -> None:
        """Take the `queues` by shape id, if they have one.

        Without a `postponement`, nothing waits for the end of peak time. `room` is what the tasks
        of each queue may still hold.
        """
        self._queues = queues
        self._definitions = definitions
        self._room = room
        self._shapes = shapes
        self.has_queues = bool(queues)
        """Whether subqueues are ordered by anything but their start_by."""
        self.key: Callable[[Rankable], tuple[object, ...]] = self._key if queues else rank
        """The sort key of tasks across all queues; the smallest goes first."""
        self._now = now
        self._urgent_until = now + urgent_slack
        self._postponement = postponement
        self.is_peak = postponement is not None and postponement.state.is_peak
        """Whether the round begins at peak time."""
        self.has_precedence = self.has_queues or self.is_peak
        """Whether subqueues may differ in precedence, or have none yet."""

    def precedence(self, shape_id: int, start_by: datetime) -> int | None:
        """Return the rank of a subqueue's queue, by the start_by of its head; None: not yet."""
        postponement = self._postponement
        if postponement is not None and self.is_postponed(shape_id, start_by, postponement):
            return None
        return self._precedence(shape_id, start_by)

    def qualifies_for_hold(self, task: HoldCandidate) -> bool:
        """Return True if a node should keep room for a task that fits nowhere yet.

        An urgent task qualifies at once, an off-peak one only when its slack has run out.
        """
        queue = self._queues.get(task.shape_id)
        if queue == Queue.URGENT:
            return True
        if queue in self._definitions.off_peak:
            return task.start_by <= self._urgent_until
        return qualifies_for_hold(task, self._now)

    @property
    def due_length(self) -> int:
        """Return how many items of the sort key are due: by queue and start_by, or start_by alone.

        The rest of the key orders the tasks of one tenant.
        """
        return 2 if self.has_queues else 1

    def horizon(self, subqueues: Mapping[tuple[int, int], datetime]) -> tuple[object, ...] | None:
        """Return a key above those of all tasks due no later than the first subqueue, or None.

        `subqueues` maps (tenant, shape) to the start_by of the head.
        """
        for (_, shape_id), start_by in subqueues.items():
            prefix = (self._precedence(shape_id, start_by),) if self.has_queues else ()
            return *prefix, start_by, inf
        return None

    def gate(self, budget: Budget | None = None) -> "StartGate":
        """Return the gate of one window, which charges the `budget`."""
        postponement = None if self._postponement is None else self._postponement.copy()
        return StartGate(self, postponement, budget, self._room.copy())

    def needs(self, shape_id: int) -> Resources:
        """Return the resources that tasks of a shape need."""
        return self._shapes[shape_id].needs

    def _key(self, task: Rankable) -> tuple[object, ...]:
        return self._precedence(task.shape_id, task.start_by), *rank(task)

    def _precedence(self, shape_id: int, start_by: datetime) -> int:
        level = self._definitions.get(self._queues.get(shape_id)).level
        if level == URGENT_LEVEL:
            return URGENT_LEVEL
        return OUT_OF_SLACK_PRECEDENCE + (0 if start_by <= self._urgent_until else level)

    def is_urgent(self, shape_id: int, start_by: datetime) -> bool:
        """Return True if a task asked to be urgent, or its slack has run out."""
        return start_by <= self._urgent_until or self._queues.get(shape_id) == Queue.URGENT

    def is_postponed(self, shape_id: int, start_by: datetime, postponement: Postponement) -> bool:
        """Return True if a task has to wait for the end of peak time."""
        queue = self._queues.get(shape_id)
        if queue == Queue.URGENT:
            return False
        needs, is_off_peak = self._shapes[shape_id].needs, queue in self._definitions.off_peak
        return postponement.applies(needs, start_by, is_off_peak=is_off_peak)


class StartGate:
    """Admits tasks to a window while their tenant's limits, queues and peak time allow it."""

    def __init__(
        self,
        order: Order,
        postponement: Postponement | None,
        budget: Budget | None,
        room: QueueRoom,
    ) -> None:
        self._order = order
        self._postponement = postponement
        self._budget = budget
        self._room = room

    def admit(self, task: Rankable) -> bool:
        """Count a task as started; False means that it has to wait.

        So have those that follow it in its subqueue, with the same shape and no less slack.
        """
        order, postponement, shape_id = self._order, self._postponement, task.shape_id
        if (
            postponement is not None
            and postponement.may_apply(task.start_by)
            and order.is_postponed(shape_id, task.start_by, postponement)
        ):
            return False
        if self._room.is_restricted and not self._room.of(shape_id):
            return False
        if self._budget is not None and not self._budget.charge(task.tenant_id, shape_id):
            return False
        if self._room.is_restricted:
            self._room.charge(shape_id)
        if postponement is not None:
            postponement.add(order.needs(shape_id))
        return True


def window(
    tasks: Iterable[Task], size: int, order: Order, budget: Budget | None = None
) -> Sequence[Task]:
    """Return the first `size` tasks that may start, and charge the `budget` with them."""
    gate = order.gate(budget)
    return list(islice(filter(gate.admit, sorted(tasks, key=order.key)), size))
