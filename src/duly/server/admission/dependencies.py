"""Links tasks that are submitted together, or after others, by what they depend on.

Names are settled before anything is stored: what nobody has, and what goes round in
circles, is refused. Edges are stored with the tasks, in the same transaction; those to
tasks that were there before come last, because these can neither start nor end from then
until the commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from duly.errors import Invalid
from duly.model import graph
from duly.model.graph import NOTHING, Ahead, Upstream
from duly.model.task import TaskSpec
from duly.policy import graph_order
from duly.policy.graph_order import Wish
from duly.store import edges, inputs
from duly.store.database import Connection
from duly.store.edges import NewEdge
from duly.store.tasks import NewTask

CHUNK = 2000
"""How many edges go into one statement."""
SHOWN = 5
"""How many unknown tasks are named."""


class Part(NamedTuple):
    """What a task is among those that it is submitted with."""

    edges: int = 0
    """How many it waits for."""
    has_dependants: bool = False
    ahead: Ahead = NOTHING


ALONE = Part()


class Links(msgspec.Struct, frozen=True):
    """What tasks that come together depend on, by their places in the request."""

    upstreams: list[list[Upstream]]
    order: list[int]
    """The places so that upstreams come first."""
    ahead: list[Ahead]

    def part_of(self, place: int) -> Part:
        """Return what a task is among them."""
        ahead = self.ahead[place]
        return Part(len(self.upstreams[place]), ahead.path > 0, ahead)

    def as_asked(self, ids: Sequence[int]) -> list[int]:
        """Return ids, which are in the order of the links, in the order of the request."""
        found = [0] * len(ids)
        for place, one in zip(self.order, ids, strict=True):
            found[place] = one
        return found


def link(specs: Sequence[TaskSpec]) -> Links | None:
    """Find out what tasks depend on; None if none of them does on anything.

    Raises Invalid, or TooLarge when there are too many dependencies.
    """
    refs = graph.index_refs(spec.ref for spec in specs)
    if not any(spec.depends_on for spec in specs):
        return None
    graph.check_number(len(spec.depends_on) for spec in specs)
    upstreams = _find(specs, refs)
    inner = [[one.index for one in ones if one.index is not None] for ones in upstreams]
    order = graph.sort(inner, lambda index: specs[index].ref or str(index))
    wishes = [Wish(spec.delay_tolerance, spec.run_at) for spec in specs]
    return Links(upstreams, order, graph_order.look_ahead(inner, order, wishes))


def _find(specs: Sequence[TaskSpec], refs: Mapping[str, int]) -> list[list[Upstream]]:
    """Find what each task depends on among those that come with it, or before them."""
    found = []
    for index, spec in enumerate(specs):
        where = f"tasks[{index}].depends_on" if len(specs) > 1 else "depends_on"
        found.append([graph.find(one, refs, where) for one in spec.depends_on])
    return found


async def attach(
    conn: Connection, tenant_id: int, links: Links, new: Sequence[NewTask], ids: Sequence[int]
) -> None:
    """Store the edges of tasks that were stored just now; those that were known have theirs.

    `new` and `ids` are in the order of the links. Raises Invalid when a task depends on one that
    its tenant does not have.
    """
    asked = links.as_asked(ids)
    fresh = {task.id for task, stored in zip(new, ids, strict=True) if task.id == stored}
    older: list[NewEdge] = []
    between: list[NewEdge] = []
    for edge in _edges(links, asked, fresh):
        # A task that comes with them may be an older one, too: its key was seen before.
        (between if edge.upstream in fresh else older).append(edge)
        if len(between) == CHUNK:
            await edges.insert(conn, tenant_id, between)
            between = []
    if between:
        await edges.insert(conn, tenant_id, between)
    if not older:
        return
    unknown = await edges.attach(conn, tenant_id, older)
    if unknown:
        raise _unknown(sorted(unknown))
    refs = {stored: task.spec.ref for task, stored in zip(new, ids, strict=True)}
    called = [(one.dependant, one.upstream, refs[one.upstream]) for one in older if one.by_ref]
    if called:
        await inputs.name_by_ref(conn, called)


def _edges(links: Links, ids: Sequence[int], fresh: set[int]) -> Iterator[NewEdge]:
    """Yield the edges of fresh tasks."""
    for place in links.order:
        if ids[place] not in fresh:
            continue
        for one in links.upstreams[place]:
            upstream = one.id if one.index is None else ids[one.index]
            yield NewEdge(ids[place], upstream, one.on, one.index is not None)


def _unknown(ids: Sequence[int]) -> Invalid:
    named = ", ".join(str(one) for one in ids[:SHOWN])
    rest = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return Invalid("depends_on", f"There is no task {named}{rest} to depend on.")
