"""Turns fire times into tasks and graphs: each is claimed once, and stored like any other task.

The caller has locked the schedules and their tenants' token buckets in this transaction, and
enforces the overlap policy (`overlaps.py`) before the commit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from duly.errors import Unavailable
from duly.model.graph import Condition
from duly.model.schedules.schedule import Overlap
from duly.model.task import Reason
from duly.server.admission.dependencies import STANDALONE
from duly.server.admission.new_task import with_owner
from duly.server.admission.rate_limiter import rate_of
from duly.server.admission.shape_ids import ShapeIds
from duly.server.artifacts import artifact_references
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.recurrence import occurrence_claims
from duly.server.recurrence.occurrence_admission import (
    OccurrenceAdmission,
    OccurrenceDraft,
    OpenOccurrences,
    rate_exceeded,
    unique_key_held,
)
from duly.server.recurrence.templates import OccurrenceSpec
from duly.server.scheduling.run_times import RunTimes
from duly.server.sequencer import Sequencer
from duly.store.database import Connection
from duly.store.tasks import edges, schedules, tasks
from duly.store.tasks.edges import NewEdge, NewGraph, StoredGraph
from duly.store.tasks.schedules import Account, Fire
from duly.store.tasks.tasks import InsertResult, NewTask

TASKS_PER_STATEMENT = 2000
"""Tasks inserted by one statement."""
EDGES_PER_STATEMENT = 5000
"""Edges inserted by one statement."""


class NewOccurrence(msgspec.Struct, frozen=True):
    """An occurrence to be stored: a task or a graph, with its ids."""

    draft: OccurrenceDraft
    spec: OccurrenceSpec
    ids: list[int]
    """The ids of its tasks, in the order of the spec."""
    graph: NewGraph | None = None
    waits_for: Sequence[int] = ()
    """The tasks of earlier occurrences behind which it is queued."""

    @property
    def id(self) -> int:
        """Return the id of the task, or of the graph."""
        return self.ids[0] if self.graph is None else self.graph.id

    def graph_edges(self) -> Iterator[NewEdge]:
        """Yield the edges between its own tasks."""
        links = self.spec.links
        if links is None:
            return
        requested = links.in_request_order(self.ids)
        for place in links.topological_order:
            for upstream in links.upstreams[place]:
                if upstream.index is not None:
                    yield NewEdge(requested[place], requested[upstream.index], upstream.on)

    def queue_edges(self) -> Iterator[NewEdge]:
        """Yield the edges to earlier occurrences, which may end in any status."""
        if self.waits_for:
            for index in self.spec.roots:
                for upstream in self.waits_for:
                    yield NewEdge(self.ids[index], upstream, Condition.ALWAYS)


class FireResult(msgspec.Struct, frozen=True):
    """The occurrences that were stored, and the reasons why others were not."""

    occurrences: list[NewOccurrence]
    """The stored ones."""
    tasks: list[NewTask]
    inserted: InsertResult
    refused: list[Reason]
    shapes: dict[str, int]
    """Shape ids to cache after the commit."""

    def by_schedule(self) -> dict[int, list[NewOccurrence]]:
        """Return the stored occurrences by schedule."""
        occurrences: dict[int, list[NewOccurrence]] = {}
        for occurrence in self.occurrences:
            occurrences.setdefault(occurrence.draft.template.id, []).append(occurrence)
        return occurrences


class Occurrences:
    """Stores the tasks and graphs of fire times on behalf of one server."""

    def __init__(
        self,
        cluster_manager: ClusterManager,
        sequencer: Sequencer,
        shapes: ShapeIds,
        run_times: RunTimes,
    ) -> None:
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._shapes = shapes
        self._run_times = run_times

    async def fire(
        self,
        conn: Connection,
        drafts: Sequence[OccurrenceDraft],
        accounts: Mapping[int, Account],
        open_occurrences: Mapping[int, OpenOccurrences],
        *,
        reclaim_refused: bool = False,
    ) -> FireResult:
        """Claim fire times, store the admitted occurrences, and record why others were refused.

        A fire time that was claimed before is skipped silently, as it has been handled; with
        `reclaim_refused`, only if it led to a task. `open_occurrences` are by schedule.
        """
        admission = OccurrenceAdmission(accounts, open_occurrences)
        decisions: list[tuple[OccurrenceDraft, NewOccurrence | Reason]] = []
        for draft in drafts:
            admitted = await admission.admit(draft)
            decisions.append(
                (draft, admitted if isinstance(admitted, Reason) else self._mint(draft, admitted))
            )
        fires = [_fire_record(draft, decision) for draft, decision in decisions]
        claimed: set[tuple[int, datetime]] = set()
        if fires:
            claimed = await occurrence_claims.claim(
                conn, drafts, fires, reclaim_refused=reclaim_refused
            )
        new = [
            decision
            for draft, decision in decisions
            if isinstance(decision, NewOccurrence) and draft.key in claimed
        ]
        result = await self._store(conn, list(_queued(new, open_occurrences)), accounts)
        result.refused[:0] = [decision for _, decision in decisions if isinstance(decision, Reason)]
        return result

    def cache_shapes(self, result: FireResult) -> None:
        """Cache the shape ids that were looked up or created, after the commit."""
        self._shapes.put(result.shapes)

    def _mint(self, draft: OccurrenceDraft, spec: OccurrenceSpec) -> NewOccurrence:
        if draft.template.graph is None:
            ids = self._sequencer.mint_many(len(spec.task_specs))
            return NewOccurrence(draft, spec, ids, None)
        graph_id, *ids = self._sequencer.mint_many(1 + len(spec.task_specs))
        return NewOccurrence(draft, spec, ids, NewGraph(graph_id, spec.name))

    async def _store(
        self,
        conn: Connection,
        occurrences: Sequence[NewOccurrence],
        accounts: Mapping[int, Account],
    ) -> FireResult:
        shape_ids, shapes = await self._shapes.intern_all(
            conn,
            [
                with_owner(
                    spec,
                    occurrence.draft.template.tenant_id,
                    fair_users=accounts[occurrence.draft.template.tenant_id].fair_users,
                    user_id=occurrence.draft.template.user_id,
                )
                for occurrence in occurrences
                for spec in occurrence.spec.task_specs
            ],
        )
        next_shape_id = iter(shape_ids)
        new = [
            task
            for occurrence in occurrences
            for task in _new_tasks(occurrence, accounts, next_shape_id, self._run_times)
        ]
        inserted = await self._insert(conn, new)
        refused = _refusals(new, inserted)
        if refused:
            await schedules.refuse(conn, refused)
        stored = [occurrence for occurrence in occurrences if occurrence.ids[0] not in refused]
        await artifact_references.add_for_occurrences(
            conn, [task for task in new if task.id not in refused]
        )
        await _store_graphs(conn, stored)
        return FireResult(
            stored,
            [task for task in new if task.id not in refused],
            inserted,
            list(refused.values()),
            shapes,
        )

    async def _insert(self, conn: Connection, new: Sequence[NewTask]) -> InsertResult:
        inserted = InsertResult([], {}, {}, set())
        for first in range(0, len(new), TASKS_PER_STATEMENT):
            chunk = await tasks.insert(
                conn, new[first : first + TASKS_PER_STATEMENT], server=self._cluster_manager.number
            )
            inserted.stored.extend(chunk.stored)
            inserted.buckets.update(chunk.buckets)
            inserted.held.update(chunk.held)
        return inserted


def _fire_record(draft: OccurrenceDraft, decision: NewOccurrence | Reason) -> Fire:
    missed = draft.missed
    task_id = graph_id = None
    if isinstance(decision, NewOccurrence):
        graph_id = None if decision.graph is None else decision.graph.id
        task_id = decision.ids[0] if graph_id is None else None
    return Fire(
        schedule_id=draft.template.id,
        fire_at=draft.fire_at,
        tenant_id=draft.template.tenant_id,
        scheduling_type=draft.template.recurrence.kind,
        task_id=task_id,
        graph_id=graph_id,
        reason=decision if isinstance(decision, Reason) else None,
        last_at=None if missed is None else missed.last_at,
        times=1 if missed is None else missed.times,
    )


def _queued(
    occurrences: Iterable[NewOccurrence], open_occurrences: Mapping[int, OpenOccurrences]
) -> Iterator[NewOccurrence]:
    """Yield the occurrences, with overlap: queue each behind the open tasks of its schedule."""
    ahead: dict[int, list[int]] = {}
    for occurrence in occurrences:
        template = occurrence.draft.template
        if template.overlap is Overlap.QUEUE:
            earlier = ahead.get(template.id)
            if earlier is None:
                earlier = list(open_occurrences.get(template.id, OpenOccurrences()).tasks)
            ahead[template.id] = [*earlier, *occurrence.ids]
            occurrence = msgspec.structs.replace(occurrence, waits_for=earlier)
        yield occurrence


def _new_tasks(
    occurrence: NewOccurrence,
    accounts: Mapping[int, Account],
    shape_ids: Iterator[int],
    run_times: RunTimes,
) -> Iterator[NewTask]:
    template, links = occurrence.draft.template, occurrence.spec.links
    is_limited = rate_of(accounts[template.tenant_id].plan) is not None
    places = range(len(occurrence.ids)) if links is None else links.topological_order
    specs = occurrence.spec.task_specs
    for place, task_id, spec in zip(places, occurrence.ids, specs, strict=True):
        part = STANDALONE if links is None else links.position_of(place)
        yield NewTask(
            id=task_id,
            tenant_id=template.tenant_id,
            user_id=template.user_id,
            shape_id=next(shape_ids),
            spec=spec,
            body_hash=b"",
            is_limited=is_limited,
            blocked_by=part.upstream_count or len(occurrence.waits_for),
            has_dependants=part.has_dependants,
            inherited=part.inherited,
            graph_id=None if occurrence.graph is None else occurrence.graph.id,
            run_time=run_times.estimate(template.tenant_id, spec.name),
        )


async def _store_graphs(conn: Connection, stored: Sequence[NewOccurrence]) -> None:
    """Store the graphs among the occurrences, and the edges between their tasks."""
    graphs = [
        StoredGraph(
            occurrence.graph,
            occurrence.draft.template.tenant_id,
            occurrence.draft.template.user_id,
            occurrence.ids,
        )
        for occurrence in stored
        if occurrence.graph is not None
    ]
    if not graphs:
        return
    await edges.insert_graphs(conn, graphs)
    for tenant_id, tenant_edges in edges_by_tenant(stored, NewOccurrence.graph_edges).items():
        for first in range(0, len(tenant_edges), EDGES_PER_STATEMENT):
            await edges.insert(conn, tenant_id, tenant_edges[first : first + EDGES_PER_STATEMENT])


def edges_by_tenant(
    occurrences: Iterable[NewOccurrence], edges_of: Callable[[NewOccurrence], Iterator[NewEdge]]
) -> dict[int, list[NewEdge]]:
    """Return the edges of occurrences, grouped by tenant."""
    grouped: dict[int, list[NewEdge]] = {}
    for occurrence in occurrences:
        new_edges = list(edges_of(occurrence))
        if new_edges:
            grouped.setdefault(occurrence.draft.template.tenant_id, []).extend(new_edges)
    return grouped


def _refusals(new: Iterable[NewTask], inserted: InsertResult) -> dict[int, Reason]:
    """Return the tasks that were not stored, with the reasons. A graph is stored as a whole."""
    stored = {task.id for task in inserted.stored}
    reasons = {}
    for task in new:
        if task.id not in stored:
            unique = task.spec.unique
            bucket = inserted.buckets.get(task.tenant_id)
            if task.graph_id is not None:
                raise Unavailable("A graph could not be stored as a whole.")
            if unique is not None and task.id in inserted.held:
                reasons[task.id] = unique_key_held(unique, inserted.held[task.id])
            elif bucket is not None:
                reasons[task.id] = rate_exceeded(bucket.rate.tasks_per_hour, bucket.rate.burst)
            else:
                raise Unavailable("The token bucket of a tenant was not locked.")
    return reasons
