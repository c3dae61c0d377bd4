"""Decides how the tasks of a graph press for those that come after them.

Two things are found by one walk from the last tasks to the first. How long the way is that
is still ahead of a task: of equals, the longest goes first, because it decides when the whole
is done. And how soon it has to start for the sake of those behind it: nobody is more patient
than whoever waits for him.

Tasks count, not their execution caps: a cap is an upper bound, a day unless somebody says
less, so whoever names a short one would be put behind all that name none. For the same reason
no caps are taken off on the way back; nearly every task would be late from the beginning.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from duly.model.graph import NOTHING, Ahead


class Wish(NamedTuple):
    """When a task itself would like to start: so soon after it may, not before its own time."""

    delay_tolerance: timedelta
    run_at: datetime | None = None


Moment = TypeVar("Moment", datetime, timedelta)


def look_ahead(
    upstreams: Sequence[Sequence[int]], order: Sequence[int], wishes: Sequence[Wish]
) -> list[Ahead]:
    """Return what is ahead of each task; `order` has the places so that upstreams come first.

    A task that has a time of its own (`run_at`) does not hurry those before it: they only
    have to start by when it has to.
    """
    found = [NOTHING] * len(upstreams)
    for place in reversed(order):
        told = _told(found[place], wishes[place])
        for upstream in upstreams[place]:
            known = found[upstream]
            found[upstream] = told if known is NOTHING else _both(known, told)
    return found


def start_by(ready_at: datetime, tolerance: timedelta, latest: datetime | None) -> datetime:
    """Return by when a task has to start that may from `ready_at` on, to the second.

    The store has the same rule (`start_by_of`), for what becomes ready there. What should
    have started before it could is to start at once.
    """
    found = ready_at + tolerance
    if latest is not None:
        found = min(found, max(latest, ready_at))
    return found.replace(microsecond=0)


def _told(behind: Ahead, wish: Wish) -> Ahead:
    """Return what a task, with all that is ahead of it, asks of those that it waits for."""
    soon = wish.delay_tolerance
    if behind.patience is not None and behind.patience < soon:
        soon = behind.patience
    if wish.run_at is None:
        return Ahead(behind.path + 1, soon, behind.latest)
    return Ahead(behind.path + 1, None, _earliest(wish.run_at + soon, behind.latest))


def _both(one: Ahead, other: Ahead) -> Ahead:
    if one == other:
        return one
    return Ahead(
        max(one.path, other.path),
        _earliest(one.patience, other.patience),
        _earliest(one.latest, other.latest),
    )


def _earliest(one: Moment | None, other: Moment | None) -> Moment | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
