"""Graphs of tasks: dependencies, refs, topological order and cycles.

A task names its upstreams by id, or by the `ref` of another task of the same request. Unknown
refs and cycles are found here from the names alone, without the database. Nothing recurses, so
a graph may be as deep as it is large.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from duly.errors import Invalid, TooLarge
from duly.model.wording import either

MAX_UPSTREAMS = 10_000
MAX_DEPENDENCIES = 500_000
"""Over all tasks of one request: one transaction stores them, and the leader propagates the end
of a task along each."""
MAX_REF_CHARS = 100
MAX_ID = 2**63 - 1
ID_PATTERN = re.compile(r"[0-9]{1,19}")
REF_PATTERN = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z_.-][A-Za-z0-9_.-]*")
"""Also used as a file name; contains a non-digit, so that it is never an id."""
MAX_CYCLE_NAMES = 10
"""Longer cycles are abbreviated in error messages."""


class Condition(StrEnum):
    """How an upstream must end for its downstream task to run."""

    SUCCESS = "success"
    FAILURE = "failure"
    """As failed or cancelled."""
    ALWAYS = "always"


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """An upstream as named by a task: an id, or the ref of a task of the same request."""

    task: str
    on: Condition = Condition.SUCCESS


class DependencyRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An upstream in a request, with how it must end."""

    task: str
    on: str | None = None


class Upstream(msgspec.Struct, frozen=True, gc=False):
    """A resolved upstream: the index of a task of the same request, or the id of an older one."""

    on: Condition
    index: int | None = None
    id: int = 0


class InheritedUrgency(NamedTuple):
    """The urgency that a task inherits from its downstream tasks."""

    remaining_path: int = 0
    """The length of the longest chain of downstream tasks, in tasks."""
    tolerance: timedelta | None = None
    """The shortest delay tolerance of its downstream tasks; None if there is none."""
    start_by: datetime | None = None
    """The earliest start_by of downstream tasks with a `run_at`."""


NOTHING_INHERITED = InheritedUrgency()


def check_ref(ref: str | None) -> str | None:
    """Return `ref`; raises Invalid if it could be an id or is not a valid file name."""
    if ref is None:
        return None
    if len(ref) > MAX_REF_CHARS or not REF_PATTERN.fullmatch(ref) or ref in (".", ".."):
        raise Invalid(
            "ref",
            f"{ref[:60]!r} is not a valid ref. Use at most {MAX_REF_CHARS} of the characters a-z, "
            "A-Z, 0-9, '.', '_' and '-', and not digits alone.",
        )
    return ref


def parse_dependencies(asked: Sequence[str | DependencyRequest]) -> list[Dependency]:
    """Return the dependencies of a request; raises Invalid for duplicates and invalid names."""
    if len(asked) > MAX_UPSTREAMS:
        raise Invalid(
            "depends_on", f"it names {len(asked)} tasks; at most {MAX_UPSTREAMS} are allowed."
        )
    by_name: dict[str, Dependency] = {}
    for index, requested in enumerate(asked):
        where = f"depends_on[{index}]"
        dependency = _parse_dependency(requested, where)
        if by_name.setdefault(dependency.task, dependency) is not dependency:
            raise Invalid(where, f"{dependency.task!r} is named twice. Name it once.")
    return list(by_name.values())


def check_dependency_count(counts: Iterable[int]) -> None:
    """Raise TooLarge if the dependencies of a request, given per task, are too many."""
    if sum(counts) > MAX_DEPENDENCIES:
        raise TooLarge(
            f"The tasks of one request may have at most {MAX_DEPENDENCIES} dependencies in total. "
            "Send fewer tasks at a time.",
            field="depends_on",
            limit=MAX_DEPENDENCIES,
        )


def _parse_dependency(asked: str | DependencyRequest, where: str) -> Dependency:
    name, on = (asked, None) if isinstance(asked, str) else (asked.task, asked.on)
    is_id = bool(ID_PATTERN.fullmatch(name)) and int(name) <= MAX_ID
    if not (is_id or (len(name) <= MAX_REF_CHARS and REF_PATTERN.fullmatch(name))):
        raise Invalid(where, f"{name[:60]!r} is neither a task ID nor a ref.")
    try:
        return Dependency(str(int(name)) if is_id else name, Condition(on or Condition.SUCCESS))
    except ValueError:
        raise Invalid(
            f"{where}.on", f"{str(on)[:40]!r} is unknown. Use {either(Condition)}."
        ) from None


def index_refs(refs: Iterable[str | None]) -> dict[str, int]:
    """Return the index of the task with each ref; raises Invalid for duplicates."""
    found: dict[str, int] = {}
    for index, ref in enumerate(refs):
        if ref is not None and found.setdefault(ref, index) != index:
            raise Invalid(
                f"tasks[{index}].ref",
                f"tasks[{found[ref]}] has the ref {ref!r} already. Give each task its own.",
            )
    return found


def resolve(dependency: Dependency, refs: Mapping[str, int], where: str) -> Upstream:
    """Resolve a dependency to a task of the same request, or to an id."""
    if dependency.task in refs:
        return Upstream(dependency.on, refs[dependency.task])
    if dependency.task.isdecimal():
        return Upstream(dependency.on, None, int(dependency.task))
    raise Invalid(
        where,
        f"no task of this request has the ref {dependency.task!r}. Give one of its refs, or a task "
        "ID.",
    )


def dependencies_field(index: int) -> str:
    """Return the field in which a task of a request names its upstreams."""
    return f"tasks[{index}].depends_on"


def topological_order(
    upstreams: Sequence[Sequence[int]],
    name: Callable[[int], str],
    field: Callable[[int], str] = dependencies_field,
) -> list[int]:
    """Return task indexes with upstreams first; the given order if it is already sorted.

    `upstreams` has for each task the indexes of its upstreams. Raises Invalid for a cycle, with
    the tasks on it called by `name`, and the `field` of one of them.
    """
    is_sorted = True
    left: list[int] = []
    dependants: list[list[int]] = [[] for _ in upstreams]
    for index, ones in enumerate(upstreams):
        left.append(len(ones))
        for upstream in ones:
            is_sorted = is_sorted and upstream < index
            dependants[upstream].append(index)
    if is_sorted:
        return list(range(len(upstreams)))
    order = [index for index, count in enumerate(left) if not count]
    for index in order:
        for dependant in dependants[index]:
            left[dependant] -= 1
            if not left[dependant]:
                order.append(dependant)
    if len(order) < len(upstreams):
        cycle = _find_cycle(upstreams, left)
        problem = "a task depends on itself, so it could never start"
        if len(cycle) > 1:
            problem = "these tasks depend on each other, so none of them could start"
        said = _describe_cycle([name(index) for index in cycle])
        raise Invalid(field(cycle[0]), f"{problem}: {said}.")
    return order


def _find_cycle(upstreams: Sequence[Sequence[int]], left: Sequence[int]) -> list[int]:
    """Return a cycle: every remaining task has a remaining upstream, so a walk must revisit one."""
    here = next(index for index, count in enumerate(left) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while here not in seen:
        seen[here] = len(path)
        path.append(here)
        here = next(upstream for upstream in upstreams[here] if left[upstream])
    return path[seen[here] :]


def _describe_cycle(names: Sequence[str]) -> str:
    """Return a cycle as text, each task after its downstream, abbreviated if long."""
    whole = [*names, names[0]]
    if len(whole) > MAX_CYCLE_NAMES + 1:
        gap = f"({len(whole) - MAX_CYCLE_NAMES} more)"
        whole = [*whole[: MAX_CYCLE_NAMES // 2], gap, *whole[-MAX_CYCLE_NAMES // 2 :]]
    return " → ".join(whole)
