"""Resolves the dependencies of tasks that are submitted together, and stores their edges.

Refs are resolved before anything is stored: unknown refs and cycles are refused. Edges are stored
in the transaction that stores the tasks. Edges to tasks of earlier submissions come last, because
inserting them locks those tasks, which then can neither start nor end until the commit.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from duly.errors import Invalid
from duly.model import graph
from duly.model.graph import NOTHING_INHERITED, InheritedUrgency, Upstream
from duly.model.task import TaskSpec
from duly.model.wording import either
from duly.policy import graph_order
from duly.policy.graph_order import TaskTiming
from duly.store.database import Connection
from duly.store.tasks import edges, inputs
from duly.store.tasks.edges import NewEdge
from duly.store.tasks.tasks import NewTask

MAX_EDGES_PER_INSERT = 2000
MAX_IDS_IN_MESSAGE = 5


class GraphPosition(NamedTuple):
    """The place of a task among the tasks submitted with it."""

    upstream_count: int = 0
    has_dependants: bool = False
    inherited: InheritedUrgency = NOTHING_INHERITED


STANDALONE = GraphPosition()
"""The position of a task without dependencies."""


class DependencyLinks(msgspec.Struct, frozen=True):
    """The resolved dependencies of tasks submitted together, by their index in the request."""

    upstreams: list[list[Upstream]]
    topological_order: list[int]
    """The indexes of the tasks, upstreams first."""
    ahead: list[InheritedUrgency]
    is_alone: bool = False
    """Whether the request is a single task, not a batch of one."""

    def position_of(self, index: int) -> GraphPosition:
        """Return the position of one task."""
        ahead = self.ahead[index]
        return GraphPosition(len(self.upstreams[index]), ahead.remaining_path > 0, ahead)

    def in_request_order(self, ids: Sequence[int]) -> list[int]:
        """Return ids, given in topological order, in the order of the request."""
        ordered = [0] * len(ids)
        for index, task_id in zip(self.topological_order, ids, strict=True):
            ordered[index] = task_id
        return ordered


def resolve(specs: Sequence[TaskSpec], *, is_alone: bool = False) -> DependencyLinks | None:
    """Resolve what each task depends on; None if there are no dependencies.

    Raises Invalid with the field of the request, in which a single task is alone; or TooLarge when
    there are too many dependencies.
    """
    refs = graph.index_refs(spec.ref for spec in specs)
    if not any(spec.depends_on for spec in specs):
        return None
    graph.check_dependency_count(len(spec.depends_on) for spec in specs)
    field = _field_alone if is_alone else graph.dependencies_field
    upstreams = [
        [
            graph.resolve(dependency, refs, f"{field(index)}[{place}]")
            for place, dependency in enumerate(spec.depends_on)
        ]
        for index, spec in enumerate(specs)
    ]
    inner = [
        [upstream.index for upstream in row if upstream.index is not None] for row in upstreams
    ]
    order = graph.topological_order(inner, lambda index: specs[index].ref or str(index), field)
    timings = [TaskTiming(spec.delay_tolerance, spec.run_at) for spec in specs]
    ahead = graph_order.inherit_urgency(inner, order, timings)
    return DependencyLinks(upstreams, order, ahead, is_alone)


def _field_alone(_: int) -> str:
    return "depends_on"


async def store_edges(
    conn: Connection,
    tenant_id: int,
    links: DependencyLinks,
    new: Sequence[NewTask],
    ids: Sequence[int],
) -> None:
    """Store the edges of the tasks that this transaction has stored; duplicates have theirs.

    `new` and `ids` are in topological order. Raises Invalid when a task depends on one that its
    tenant does not have.
    """
    request_ids = links.in_request_order(ids)
    stored = {task.id for task, task_id in zip(new, ids, strict=True) if task.id == task_id}
    older: list[NewEdge] = []
    between: list[NewEdge] = []
    for edge in _new_edges(links, request_ids, stored):
        # An upstream of the same request may be an older task, too, if it is a duplicate.
        (between if edge.upstream in stored else older).append(edge)
        if len(between) == MAX_EDGES_PER_INSERT:
            await edges.insert(conn, tenant_id, between)
            between = []
    if between:
        await edges.insert(conn, tenant_id, between)
    if not older:
        return
    unknown = await edges.attach(conn, tenant_id, older)
    if unknown:
        raise _unknown_upstreams(links, unknown)
    refs = {task_id: task.spec.ref for task, task_id in zip(new, ids, strict=True)}
    by_ref = [(edge.dependant, edge.upstream, refs[edge.upstream]) for edge in older if edge.by_ref]
    if by_ref:
        await inputs.name_by_ref(conn, by_ref)


def _new_edges(links: DependencyLinks, ids: Sequence[int], stored: set[int]) -> Iterator[NewEdge]:
    """Yield the edges of the tasks in `stored`; `ids` are in the order of the request."""
    for index in links.topological_order:
        if ids[index] not in stored:
            continue
        for upstream in links.upstreams[index]:
            upstream_id = upstream.id if upstream.index is None else ids[upstream.index]
            yield NewEdge(ids[index], upstream_id, upstream.on, upstream.index is not None)


def _unknown_upstreams(links: DependencyLinks, unknown: Collection[int]) -> Invalid:
    """Return the error for upstreams that do not exist, with the field of the first of them."""
    names = [repr(str(task_id)) for task_id in sorted(unknown)[:MAX_IDS_IN_MESSAGE]]
    if (more := len(unknown) - len(names)) > 0:
        names.append(f"{more} more")
    missing = "is no task" if len(unknown) == 1 else "are no tasks"
    field = _field_alone if links.is_alone else graph.dependencies_field
    first = next(
        (
            f"{field(index)}[{place}]"
            for index, row in enumerate(links.upstreams)
            for place, upstream in enumerate(row)
            if upstream.index is None and upstream.id in unknown
        ),
        "depends_on",
    )
    return Invalid(first, f"there {missing} {either(names, 'and')}.", kind="task")
