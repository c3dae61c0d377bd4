"""Decides in which order waiting tasks are served.

Within a tenant the rank is: the earliest start_by (to the second), the higher
priority, the shorter cap, the older task. Tenants are one line so far; their
turns by share will be decided here too.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol, TypeVar

from duly.policy.limits import Budget


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
    def execution_cap(self) -> timedelta: ...  # noqa: D102


class Waiting(Protocol):
    """What is needed of a task to tell whether it may wait for longer."""

    @property
    def slack(self) -> timedelta: ...  # noqa: D102
    @property
    def delay_tolerance(self) -> timedelta: ...  # noqa: D102
    @property
    def losses(self) -> int: ...  # noqa: D102


Task = TypeVar("Task", bound=Ranked)


def rank(task: Ranked) -> tuple[datetime, int, timedelta, int]:
    """Return the key by which a task is ordered; the smallest goes first."""
    return task.start_by, -task.priority, task.execution_cap, task.id


def presses(task: Waiting) -> bool:
    """Say whether room should be kept for a task that fits nowhere yet.

    The other half of its delay tolerance is what it takes until the room is there. A task
    that was lost had begun: it should go on at once, however patient it was.
    """
    return task.losses > 0 or task.slack <= task.delay_tolerance / 2


def window(tasks: Iterable[Task], size: int, budget: Budget | None = None) -> Sequence[Task]:
    """Return the `size` tasks that come first, without those for which the `budget` has no room.

    It is charged with those that are returned.
    """
    ranked = sorted(tasks, key=rank)
    if budget is None:
        return ranked[:size]
    within = (task for task in ranked if budget.charge(task.tenant_id, task.shape_id))
    return list(islice(within, size))
