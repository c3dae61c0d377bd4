"""Turns fire times into tasks and graphs: each is claimed once, and stored like any other.

Whoever calls has locked the schedules, and their tenants' buckets, in this transaction, and
sees to what overlaps (`overlaps.py`) before the commit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from duly.errors import Unavailable
from duly.model.graph import Condition
from duly.model.schedule import Overlap
from duly.model.task import Reason
from duly.server import bundles, claims
from duly.server.cluster_manager import ClusterManager
from duly.server.drafts import Admission, Draft, Open, held, used_up
from duly.server.linker import ALONE
from duly.server.rate_limiter import rate_of
from duly.server.sequencer import Sequencer
from duly.server.shape_book import ShapeBook
from duly.server.templates import Plot
from duly.store import edges, schedules, tasks
from duly.store.database import Connection
from duly.store.edges import NewEdge, NewGraph, StoredGraph
from duly.store.schedules import Account, Fire
from duly.store.tasks import Inserted, NewTask

CHUNK = 2000
"""How many tasks go into one statement."""
EDGES = 5000
"""How many edges do."""


class Occurrence(msgspec.Struct, frozen=True):
    """What a fire time leads to: a task, or a graph of some."""

    draft: Draft
    plot: Plot
    ids: list[int]
    """In the order of the plot."""
    graph: NewGraph | None = None
    behind: Sequence[int] = ()
    """The tasks of earlier ones for whose ends it waits."""

    @property
    def id(self) -> int:
        """Return the id of the task, or of the graph."""
        return self.ids[0] if self.graph is None else self.graph.id

    def inner_edges(self) -> Iterator[NewEdge]:
        """Yield the edges between its own tasks."""
        links = self.plot.links
        if links is None:
            return
        asked = links.as_asked(self.ids)
        for place in links.order:
            for one in links.upstreams[place]:
                if one.index is not None:
                    yield NewEdge(asked[place], asked[one.index], one.on)

    def outer_edges(self) -> Iterator[NewEdge]:
        """Yield the edges by which it waits for the ends of earlier ones, however they end."""
        if self.behind:
            for index in self.plot.roots:
                for upstream in self.behind:
                    yield NewEdge(self.ids[index], upstream, Condition.ALWAYS)


class Made(msgspec.Struct, frozen=True):
    """What has become of drafts."""

    occurrences: list[Occurrence]
    """What is stored."""
    tasks: list[NewTask]
    inserted: Inserted
    refused: list[Reason]
    shapes: dict[str, int]
    """To be remembered after the commit."""

    def opened(self) -> dict[int, list[Occurrence]]:
        """Return what is stored by schedule."""
        found: dict[int, list[Occurrence]] = {}
        for one in self.occurrences:
            found.setdefault(one.draft.template.id, []).append(one)
        return found


class Occurrences:
    """Makes tasks and graphs of fire times on behalf of one server."""

    def __init__(
        self, cluster_manager: ClusterManager, sequencer: Sequencer, shapes: ShapeBook
    ) -> None:
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._shapes = shapes

    async def make(
        self,
        conn: Connection,
        drafts: Sequence[Draft],
        accounts: Mapping[int, Account],
        opened: Mapping[int, Open],
        *,
        again: bool = False,
    ) -> Made:
        """Claim fire times, store what they lead to, and record why the others lead to nothing.

        A fire time that was claimed before is passed over in silence: it has been seen to. With
        `again`, only if it led to something. `opened` says by schedule what has not ended.
        """
        admission = Admission(accounts, opened)
        asked: list[tuple[Draft, Occurrence | Reason]] = []
        for draft in drafts:
            found = await admission.judge(draft)
            asked.append((draft, found if isinstance(found, Reason) else self._mint(draft, found)))
        fires = [_fire(draft, outcome) for draft, outcome in asked]
        fresh = await claims.claim(conn, drafts, fires, again=again) if fires else set()
        claimed = [
            outcome
            for draft, outcome in asked
            if isinstance(outcome, Occurrence) and draft.key in fresh
        ]
        made = await self._store(conn, list(_lined_up(claimed, opened)), accounts)
        made.refused[:0] = [outcome for _, outcome in asked if isinstance(outcome, Reason)]
        return made

    def remember(self, made: Made) -> None:
        """Take in what was found out on the way, after the commit."""
        self._shapes.remember(made.shapes)

    def _mint(self, draft: Draft, plot: Plot) -> Occurrence:
        if draft.template.graph is None:
            return Occurrence(draft, plot, self._sequencer.mint_many(len(plot.specs)), None)
        graph_id, *ids = self._sequencer.mint_many(1 + len(plot.specs))
        return Occurrence(draft, plot, ids, NewGraph(graph_id, plot.name))

    async def _store(
        self,
        conn: Connection,
        occurrences: Sequence[Occurrence],
        accounts: Mapping[int, Account],
    ) -> Made:
        numbers, shapes = await self._shapes.find_all(
            conn, [spec for one in occurrences for spec in one.plot.specs]
        )
        each = iter(numbers)
        new = [task for one in occurrences for task in _new_tasks(one, accounts, each)]
        inserted = await self._insert(conn, new)
        late = _left_out(new, inserted)
        if late:
            await schedules.refuse(conn, late)
        stored = [one for one in occurrences if one.ids[0] not in late]
        await bundles.hold_for_occurrences(conn, [task for task in new if task.id not in late])
        await _store_graphs(conn, stored)
        return Made(
            stored,
            [task for task in new if task.id not in late],
            inserted,
            list(late.values()),
            shapes,
        )

    async def _insert(self, conn: Connection, new: Sequence[NewTask]) -> Inserted:
        done = Inserted([], {}, {}, set())
        for first in range(0, len(new), CHUNK):
            chunk = await tasks.insert(
                conn, new[first : first + CHUNK], server=self._cluster_manager.number
            )
            done.stored.extend(chunk.stored)
            done.buckets.update(chunk.buckets)
            done.held.update(chunk.held)
        return done


def _fire(draft: Draft, outcome: Occurrence | Reason) -> Fire:
    missed = draft.missed
    task_id = graph_id = None
    if isinstance(outcome, Occurrence):
        graph_id = None if outcome.graph is None else outcome.graph.id
        task_id = outcome.ids[0] if graph_id is None else None
    return Fire(
        schedule_id=draft.template.id,
        fire_at=draft.fire_at,
        tenant_id=draft.template.tenant_id,
        scheduling_type=draft.template.recurrence.kind,
        task_id=task_id,
        graph_id=graph_id,
        reason=outcome if isinstance(outcome, Reason) else None,
        last_at=None if missed is None else missed.last_at,
        times=1 if missed is None else missed.times,
    )


def _lined_up(
    occurrences: Iterable[Occurrence], opened: Mapping[int, Open]
) -> Iterator[Occurrence]:
    """Yield them, each behind what of its schedule has not ended, if it is to wait for that."""
    ahead: dict[int, list[int]] = {}
    for one in occurrences:
        template = one.draft.template
        if template.overlap is Overlap.QUEUE:
            before = ahead.get(template.id)
            if before is None:
                before = list(opened.get(template.id, Open()).tasks)
            ahead[template.id] = [*before, *one.ids]
            one = msgspec.structs.replace(one, behind=before)
        yield one


def _new_tasks(
    one: Occurrence, accounts: Mapping[int, Account], shapes: Iterator[int]
) -> Iterator[NewTask]:
    template, links = one.draft.template, one.plot.links
    is_limited = rate_of(accounts[template.tenant_id].plan) is not None
    places = range(len(one.ids)) if links is None else links.order
    for place, task_id, spec in zip(places, one.ids, one.plot.specs, strict=True):
        part = ALONE if links is None else links.part_of(place)
        yield NewTask(
            id=task_id,
            tenant_id=template.tenant_id,
            user_id=template.user_id,
            shape_id=next(shapes),
            spec=spec,
            body_hash=b"",
            is_limited=is_limited,
            blocked_by=part.edges or len(one.behind),
            has_dependants=part.has_dependants,
            ahead=part.ahead,
            graph_id=None if one.graph is None else one.graph.id,
        )


async def _store_graphs(conn: Connection, stored: Sequence[Occurrence]) -> None:
    """Store which tasks are graphs, and the edges between these."""
    graphs = [
        StoredGraph(one.graph, one.draft.template.tenant_id, one.draft.template.user_id, one.ids)
        for one in stored
        if one.graph is not None
    ]
    if not graphs:
        return
    await edges.insert_graphs(conn, graphs)
    for tenant_id, inner in by_tenant(stored, Occurrence.inner_edges).items():
        for first in range(0, len(inner), EDGES):
            await edges.insert(conn, tenant_id, inner[first : first + EDGES])


def by_tenant(
    occurrences: Iterable[Occurrence], find: Callable[[Occurrence], Iterator[NewEdge]]
) -> dict[int, list[NewEdge]]:
    """Return edges of occurrences, those of each tenant together."""
    found: dict[int, list[NewEdge]] = {}
    for one in occurrences:
        several = list(find(one))
        if several:
            found.setdefault(one.draft.template.tenant_id, []).extend(several)
    return found


def _left_out(new: Iterable[NewTask], inserted: Inserted) -> dict[int, Reason]:
    """Return the tasks that were not stored, and why; of a graph all are, or nothing is."""
    stored = {one.id for one in inserted.stored}
    reasons = {}
    for task in new:
        if task.id not in stored:
            unique = task.spec.unique
            bucket = inserted.buckets.get(task.tenant_id)
            if task.graph_id is not None:
                raise Unavailable("A graph could not be stored as a whole.")
            if unique is not None and task.id in inserted.held:
                reasons[task.id] = held(unique, inserted.held[task.id])
            elif bucket is not None:
                reasons[task.id] = used_up(bucket.rate.tasks_per_hour, bucket.rate.burst)
            else:
                raise Unavailable("The bucket of a tenant was not held.")
    return reasons
