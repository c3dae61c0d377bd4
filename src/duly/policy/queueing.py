"""Decides in which order waiting tasks are served.

First by queue: who asked for `urgent`, those whose delay tolerance is nearly used up, what
schedules have produced, everything else, and what may wait for quiet hours. A task moves up by
itself as its slack runs out, whatever its queue: when that is so is the same for all, so that
among those that moved up, as among the others, the earliest start_by goes first.

Within a tenant the rank is: the earliest start_by (to the second), the higher
priority, the longer remaining path of its graph, the shorter cap, the older task.
Tenants are one line so far; their turns by share will be decided here too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from typing import Protocol, TypeVar

from duly.model.node import Offer
from duly.model.queue import Queue
from duly.model.shape import Shape
from duly.policy.limits import Budget
from duly.policy.peak import Load

TURNS = {Queue.URGENT: 0, Queue.PERIODIC: 2, Queue.DELAYABLE: 3, Queue.OFF_PEAK: 4}
OUT_OF_SLACK = 1
"""The turn of a task that must start soon: after those that asked for it, and paid for it."""


class Ranked(Protocol):
    """What is needed of a task to rank it, and to tell what it takes of its tenant's limits."""

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
    def execution_cap(self) -> timedelta: ...  # noqa: D102


class Waiting(Protocol):
    """What is needed of a task to tell whether it may wait for longer."""

    @property
    def shape_id(self) -> int: ...  # noqa: D102
    @property
    def start_by(self) -> datetime: ...  # noqa: D102
    @property
    def delay_tolerance(self) -> timedelta: ...  # noqa: D102
    @property
    def losses(self) -> int: ...  # noqa: D102


Task = TypeVar("Task", bound=Ranked)


Rank = tuple[datetime, int, int, timedelta, int]
"""By when it must start, the negative of its priority and of its path, its cap, its id."""


def rank(task: Ranked) -> Rank:
    """Return the key by which a task is ordered; the smallest goes first."""
    return task.start_by, -task.priority, -task.remaining_path, task.execution_cap, task.id


def presses(task: Waiting, now: datetime) -> bool:
    """Say whether room should be kept for a task that fits nowhere yet.

    The other half of its delay tolerance is what it takes until the room is there. A task
    that was lost had begun: it should go on at once, however patient it was.
    """
    return task.losses > 0 or task.start_by - now <= task.delay_tolerance / 2


def queue_of(standing: Queue | None, slack: timedelta, urgent_slack: timedelta) -> Queue:
    """Return the queue that a waiting task is in, when it is so long until its start_by.

    `standing` is what it asked for, or what it is; None if it is nothing in particular.
    """
    if slack <= urgent_slack:
        return Queue.URGENT
    return standing or Queue.DELAYABLE


class Order:
    """Whose turn it is in one round, and who has to wait for quieter times."""

    def __init__(
        self,
        queues: Mapping[int, Queue],
        shapes: Mapping[int, Shape],
        offers: Iterable[Offer],
        *,
        now: datetime,
        urgent_slack: timedelta,
        peak_percent: int,
    ) -> None:
        """Take the `queues` of the shapes of what waits, if they have one, and what is free."""
        self._queues = queues
        self._shapes = shapes
        self.has_queues = bool(queues)
        """Whether there is anything to order lines by but their time."""
        self.key: Callable[[Ranked], tuple[object, ...]] = self._key if queues else rank
        """The key by which tasks of all queues are ordered; the smallest goes first."""
        self._now = now
        self._urgent_until = now + urgent_slack
        self._peak_percent = peak_percent
        # Of a thousand nodes it costs milliseconds, which few have a use for.
        self._load = Load(offers) if Queue.OFF_PEAK in queues.values() else None

    def turn(self, shape_id: int, start_by: datetime) -> int | None:
        """Return when a line is served whose first task must start by then; None for not yet."""
        if self._load is not None and self._waits(shape_id, start_by, self._load):
            return None
        return self._turn(shape_id, start_by)

    def presses(self, task: Waiting) -> bool:
        """Say whether room should be kept for a task that fits nowhere yet.

        For one that is urgent, at once; for one that may run in quiet hours, not before it must.
        """
        match self._queues.get(task.shape_id):
            case Queue.URGENT:
                return True
            case Queue.OFF_PEAK:
                return task.start_by <= self._urgent_until
            case _:
                return presses(task, self._now)

    def moment(self, task: Ranked) -> tuple[object, ...]:
        """Return what the keys of all tasks begin with that are due as this one is."""
        return self.key(task)[: 2 if self.has_queues else 1]

    def horizon(self, lines: Mapping[tuple[int, int], datetime]) -> tuple[object, ...] | None:
        """Return what is above the keys of all that are due no later than a line; None for none.

        A line is a tenant and a shape, and when its first task must start.
        """
        for (_, shape_id), since in lines.items():
            turn = (self._turn(shape_id, since),) if self.has_queues else ()
            return *turn, since, inf
        return None

    def within(self, tasks: Iterable[Task], budget: Budget | None) -> Iterator[Task]:
        """Yield the tasks that may start if those before them do, and charge the `budget`."""
        load = None if self._load is None else self._load.copy()
        for task in tasks:
            if load is not None and self._waits(task.shape_id, task.start_by, load):
                continue
            if budget is not None and not budget.charge(task.tenant_id, task.shape_id):
                continue
            if load is not None:
                load.add(self._shapes[task.shape_id].needs)
            yield task

    def _key(self, task: Ranked) -> tuple[object, ...]:
        return self._turn(task.shape_id, task.start_by), *rank(task)

    def _turn(self, shape_id: int, start_by: datetime) -> int:
        queue = self._queues.get(shape_id, Queue.DELAYABLE)
        if queue is not Queue.URGENT and start_by <= self._urgent_until:
            return OUT_OF_SLACK
        return TURNS[queue]

    def _waits(self, shape_id: int, start_by: datetime, load: Load) -> bool:
        if self._queues.get(shape_id) is not Queue.OFF_PEAK or start_by <= self._urgent_until:
            return False
        return load.scarcest(self._shapes[shape_id].needs).reaches(self._peak_percent)


def window(
    tasks: Iterable[Task], size: int, order: Order, budget: Budget | None = None
) -> Sequence[Task]:
    """Return the `size` tasks that come first, without those that may not start.

    The `budget` is charged with those that are returned.
    """
    return list(islice(order.within(sorted(tasks, key=order.key), budget), size))
