"""A graph of tasks: who waits for whom, and that nobody waits for itself.

A task names its upstreams by id, or by the `ref` of another task that is submitted with
it. What is found here out of names alone needs no database: names that nobody has, and
cycles. Nothing recurses, so a graph may be as deep as it is large.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from duly.errors import Invalid, TooLarge

MAX_UPSTREAMS = 10_000
MAX_DEPENDENCIES = 500_000
"""How many the tasks of one request may have together: one transaction stores them, and the
leader has to tell of an end along each."""
MAX_REF = 100
LARGEST_ID = 2**63 - 1
ID = re.compile(r"[0-9]{1,19}")
REF = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z_.-][A-Za-z0-9_.-]*")
"""Also the name of a file, in time; with something that no id has, so that it is none."""
SHOWN = 10
"""How many tasks of a cycle are named."""


class Condition(StrEnum):
    """How an upstream must end, for its dependant to run."""

    SUCCESS = "success"
    FAILURE = "failure"
    """As failed or cancelled."""
    ALWAYS = "always"


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """What a task waits for: the id of a task, or the ref of one that comes with it."""

    task: str
    on: Condition = Condition.SUCCESS


class DependencyRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a task waits for, with how it must end."""

    task: str
    on: str | None = None


class Upstream(msgspec.Struct, frozen=True, gc=False):
    """What a task waits for, found: a task that comes with it, or the id of an older one."""

    on: Condition
    index: int | None = None
    id: int = 0


class Ahead(NamedTuple):
    """What is ahead of a task in its graph."""

    path: int = 0
    """How many tasks have to run one after the other once it is done, at most."""
    patience: timedelta | None = None
    """How soon it has to start for those behind it, once it may; none if they do not say."""
    latest: datetime | None = None
    """When it has to start for those that have a time of their own."""


NOTHING = Ahead()


def check_ref(ref: str | None) -> str | None:
    """Return `ref`, unless it could be an id or no name of a file."""
    if ref is None:
        return None
    if len(ref) > MAX_REF or not REF.fullmatch(ref) or ref in (".", ".."):
        raise Invalid(
            "ref",
            f"ref has at most {MAX_REF} of a to z, A to Z, digits and ._- and is no number: "
            f"{ref[:60]!r}.",
        )
    return ref


def dependencies(asked: Sequence[str | DependencyRequest]) -> list[Dependency]:
    """Return what a request depends on; raises Invalid for what it names twice or wrongly."""
    if len(asked) > MAX_UPSTREAMS:
        raise Invalid("depends_on", f"A task may depend on at most {MAX_UPSTREAMS} tasks.")
    found: dict[str, Dependency] = {}
    for index, one in enumerate(asked):
        where = f"depends_on[{index}]"
        dependency = _dependency(one, where)
        if found.setdefault(dependency.task, dependency) is not dependency:
            raise Invalid(where, f"{where} names {dependency.task!r} a second time.")
    return list(found.values())


def check_number(counts: Iterable[int]) -> None:
    """Raise TooLarge when tasks that come together depend on too many, by how many each does."""
    if sum(counts) > MAX_DEPENDENCIES:
        raise TooLarge(
            f"The tasks of one request may have at most {MAX_DEPENDENCIES} dependencies together.",
            field="depends_on",
            limit=MAX_DEPENDENCIES,
        )


def _dependency(asked: str | DependencyRequest, where: str) -> Dependency:
    name, on = (asked, None) if isinstance(asked, str) else (asked.task, asked.on)
    is_id = bool(ID.fullmatch(name)) and int(name) <= LARGEST_ID
    if not (is_id or (len(name) <= MAX_REF and REF.fullmatch(name))):
        raise Invalid(where, f"{where} is neither the id nor the ref of a task: {name[:60]!r}.")
    try:
        return Dependency(str(int(name)) if is_id else name, Condition(on or Condition.SUCCESS))
    except ValueError:
        words = '"success", "failure" or "always"'
        raise Invalid(f"{where}.on", f"{where}.on is {words}, not {str(on)[:40]!r}.") from None


def index_refs(refs: Iterable[str | None]) -> dict[str, int]:
    """Return which task has which ref; raises Invalid when two have the same."""
    found: dict[str, int] = {}
    for index, ref in enumerate(refs):
        if ref is not None and found.setdefault(ref, index) != index:
            raise Invalid(
                f"tasks[{index}].ref",
                f"tasks[{found[ref]}] and tasks[{index}] have the same ref {ref!r}.",
            )
    return found


def find(dependency: Dependency, refs: Mapping[str, int], where: str) -> Upstream:
    """Return what a dependency means among the tasks that come together."""
    if dependency.task in refs:
        return Upstream(dependency.on, refs[dependency.task])
    if dependency.task.isdecimal():
        return Upstream(dependency.on, None, int(dependency.task))
    raise Invalid(where, f"{where}: no task of this request has the ref {dependency.task!r}.")


def sort(upstreams: Sequence[Sequence[int]], name: Callable[[int], str]) -> list[int]:
    """Return an order in which upstreams come first: as given, if that is one.

    `upstreams` has for each task the places of those that it waits for. Raises Invalid when
    some wait for each other, and says which, by `name`.
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
        cycle = _cycle(upstreams, left)
        who = "These tasks" if len(cycle) > 1 else "This task"
        whom = "each other" if len(cycle) > 1 else "itself"
        said = _describe([name(index) for index in cycle])
        raise Invalid("depends_on", f"{who} would wait for {whom} for ever: {said}.")
    return order


def _cycle(upstreams: Sequence[Sequence[int]], left: Sequence[int]) -> list[int]:
    """Return a cycle: whatever is left waits for something that is left, so a walk comes back."""
    here = next(index for index, count in enumerate(left) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while here not in seen:
        seen[here] = len(path)
        path.append(here)
        here = next(upstream for upstream in upstreams[here] if left[upstream])
    return path[seen[here] :]


def _describe(names: Sequence[str]) -> str:
    """Return a cycle in words, each after what waits for it, shortened when it is long."""
    whole = [*names, names[0]]
    if len(whole) > SHOWN + 1:
        gap = f"({len(whole) - SHOWN} more)"
        whole = [*whole[: SHOWN // 2], gap, *whole[-SHOWN // 2 :]]
    return " → ".join(whole)
