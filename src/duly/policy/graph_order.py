"""Decides how much urgency a task of a graph inherits from its downstream tasks.

One walk from the last tasks to the first computes two things. The remaining path: among
otherwise equal tasks the one with the longest path to the end goes first, because the critical
path decides when the graph is done. And the start_by: deadlines propagate upstream, so a task
inherits the shortest delay tolerance and the earliest `start_by` of its downstream tasks.

The path is counted in tasks, not in execution caps. A cap is an upper bound, a day unless the
client sets less, so a task with a short cap would lose to every task without one. For the same
reason caps are not subtracted on the way upstream: nearly every task would be late at once.

Decision: docs/adr/0021-graph-order.md.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from duly.model.graph import NOTHING_INHERITED, InheritedUrgency


class TaskTiming(NamedTuple):
    """A task's own delay tolerance, and the time before which it may not run."""

    delay_tolerance: timedelta
    run_at: datetime | None = None


Comparable = TypeVar("Comparable", datetime, timedelta)


def inherit_urgency(
    upstreams: Sequence[Sequence[int]], order: Sequence[int], timings: Sequence[TaskTiming]
) -> list[InheritedUrgency]:
    """Return what each task inherits; `order` lists task indexes with upstreams first.

    A task with a `run_at` passes on no tolerance: its upstreams only have to start by the
    time at which it has to start itself.
    """
    inherited = [NOTHING_INHERITED] * len(upstreams)
    for index in reversed(order):
        passed_on = _passed_upstream(inherited[index], timings[index])
        for upstream in upstreams[index]:
            current = inherited[upstream]
            inherited[upstream] = (
                passed_on if current is NOTHING_INHERITED else _merge(current, passed_on)
            )
    return inherited


def start_by(ready_at: datetime, tolerance: timedelta, inherited: datetime | None) -> datetime:
    """Return the start_by, to the second, of a task that becomes ready at `ready_at`.

    An inherited start_by that has passed means: start at once. The store applies the same rule
    (`start_by_of`) to tasks that become ready there.
    """
    by = ready_at + tolerance
    if inherited is not None:
        by = min(by, max(inherited, ready_at))
    return by.replace(microsecond=0)


def _passed_upstream(inherited: InheritedUrgency, timing: TaskTiming) -> InheritedUrgency:
    """Return what a task passes on to its upstreams: its own timing and what it inherits."""
    path = inherited.remaining_path + 1
    tolerance = timing.delay_tolerance
    if inherited.tolerance is not None and inherited.tolerance < tolerance:
        tolerance = inherited.tolerance
    if timing.run_at is None:
        return InheritedUrgency(path, tolerance, inherited.start_by)
    return InheritedUrgency(path, None, _earliest(timing.run_at + tolerance, inherited.start_by))


def _merge(first: InheritedUrgency, second: InheritedUrgency) -> InheritedUrgency:
    if first == second:
        return first
    return InheritedUrgency(
        max(first.remaining_path, second.remaining_path),
        _earliest(first.tolerance, second.tolerance),
        _earliest(first.start_by, second.start_by),
    )


def _earliest(first: Comparable | None, second: Comparable | None) -> Comparable | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)
