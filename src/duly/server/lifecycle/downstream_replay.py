"""Replays a task together with the downstream tasks that were cancelled because it failed.

The new tasks depend on each other as the old ones did. Other upstreams count as they are now:
one that is done is fulfilled, one that is live is waited for, and one that failed and has been
replayed is replaced by its replay.

Decision: docs/adr/0022-graph-operations.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from duly.errors import Conflict, NotFound, TooLarge, Unavailable
from duly.model.graph import Condition, Dependency
from duly.model.requests.task_request import replayed
from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server.admission import dependencies
from duly.server.admission.submitter import Submitter
from duly.server.lifecycle.replayer import read_spec
from duly.server.offload import offload
from duly.server.sequencer import Sequencer
from duly.store.database import Connection, Database
from duly.store.tasks import inputs, replays, tasks
from duly.store.tasks.edges import NewGraph
from duly.store.tasks.replays import UpstreamEdge

TASKS_PER_READ = 1000
"""Tasks whose specs are read in one statement."""
UNRESOLVED_DOWNSTREAMS = (
    "The end of the task has not reached its downstream tasks yet. Nothing was stored; try again."
)


class ReplaySet(msgspec.Struct, frozen=True):
    """The tasks to replay, by their old ids. The requested task comes first."""

    specs: dict[int, TaskSpec]
    upstreams: list[UpstreamEdge]
    replays: dict[int, int]
    """The replays of failed upstreams outside the set."""
    graph: str | None


class UpstreamLink(NamedTuple):
    """How a replayed task depends on an upstream."""

    on: Condition
    ref: str | None
    """The name by which the task refers to the upstream, if not by its id."""


class DownstreamReplay:
    """Replays tasks with their cancelled downstreams."""

    def __init__(
        self, database: Database, sequencer: Sequencer, submitter: Submitter, max_tasks: int
    ) -> None:
        self._database = database
        self._sequencer = sequencer
        self._submitter = submitter
        self._max_tasks = max_tasks

    async def replay(self, credential: Credential, task_id: int, *, dead: bool = False) -> int:
        """Replay an ended task and its cancelled downstreams; return the task's new id.

        With `dead` the task must be a dead letter, and is taken out of the dead letters in the
        same transaction, so that the set is replayed once. Several tasks form a graph.
        """
        async with self._database.reading_for(credential.tenant_id) as conn:
            replay_set = await self._read_set(conn, credential, task_id)
        specs = await offload(len(replay_set.specs), _replay_specs, replay_set.specs, credential)
        upstreams = _upstream_links(replay_set)
        links = await offload(len(specs), dependencies.resolve, _linked_specs(upstreams, specs))
        is_graph = len(specs) > 1
        graph = NewGraph(self._sequencer.mint(), replay_set.graph) if is_graph else None

        async def record(conn: Connection, ids: Sequence[int]) -> None:
            was_dead = await tasks.remove_dead_letter(conn, credential.tenant_id, task_id)
            if dead and not was_dead:
                raise NotFound(f"There is no dead letter {str(task_id)!r}.", kind="dead letter")
            events = {
                old: {"task": str(new)} for old, new in zip(replay_set.specs, ids, strict=True)
            }
            await tasks.add_events(conn, credential.tenant_id, "replayed", events)
            by_ref = _inputs_by_ref(upstreams, ids)
            if by_ref:
                await inputs.name_by_ref(conn, by_ref)

        ids = await self._submitter.submit_linked(credential, specs, links, graph, record)
        return ids[0]

    async def _read_set(self, conn: Connection, credential: Credential, task_id: int) -> ReplaySet:
        tenant_id = credential.tenant_id
        if not (await read_spec(conn, credential, task_id)).has_ended:
            raise Conflict(
                f"Task {task_id} has not ended; only a task that has ended can be replayed."
            )
        ids, is_unresolved = await replays.read_cancelled_downstream(
            conn, tenant_id, task_id, limit=self._max_tasks + 1
        )
        if len(ids) > self._max_tasks:
            raise TooLarge(
                f"This would replay more than {self._max_tasks} tasks, which is the limit."
            )
        if is_unresolved:
            raise Unavailable(UNRESOLVED_DOWNSTREAMS)
        specs: dict[int, TaskSpec] = {}
        upstreams: list[UpstreamEdge] = []
        for first in range(0, len(ids), TASKS_PER_READ):
            chunk = ids[first : first + TASKS_PER_READ]
            stored = await tasks.read_specs(conn, tenant_id, chunk)
            specs |= {task: stored[task].spec for task in chunk if task in stored}
            upstreams += await replays.read_upstreams(conn, tenant_id, chunk)
        failed = {edge.upstream_id for edge in upstreams if edge.is_met is False} - specs.keys()
        newer = await replays.read_replays(conn, tenant_id, sorted(failed)) if failed else {}
        graph = await replays.read_graph_name(conn, tenant_id, task_id)
        return ReplaySet(specs, upstreams, newer, graph)


def _inputs_by_ref(
    upstreams: Mapping[int, Mapping[int, UpstreamLink]], ids: Sequence[int]
) -> list[tuple[int, int, str | None]]:
    """Return (task, upstream, ref) for upstreams outside the set whose result is read by ref."""
    return [
        (new, upstream, link.ref)
        for new, links in zip(ids, upstreams.values(), strict=True)
        for upstream, link in links.items()
        if link.ref is not None and upstream not in upstreams
    ]


def _replay_specs(specs: Mapping[int, TaskSpec], credential: Credential) -> list[TaskSpec]:
    """Return the specs of the replays under the caller's current plan."""
    return [replayed(spec, credential.plan, replay_of=old) for old, spec in specs.items()]


def _upstream_links(replay_set: ReplaySet) -> dict[int, dict[int, UpstreamLink]]:
    """Return the upstreams of each task by old id, failed ones replaced by their replays."""
    requested = next(iter(replay_set.specs))
    links: dict[int, dict[int, UpstreamLink]] = {old: {} for old in replay_set.specs}

    def is_replaced(edge: UpstreamEdge) -> bool:
        return _current_upstream(replay_set, edge) != edge.upstream_id

    # Unreplaced upstreams first, so that a replay that is also an upstream itself is merged.
    for edge in sorted(replay_set.upstreams, key=is_replaced):
        if edge.dependant_id == requested and edge.is_met is False:
            # The caller named this task: it runs, whatever it once waited for.
            continue
        task_links = links[edge.dependant_id]
        upstream, condition = _current_upstream(replay_set, edge), edge.condition
        existing = task_links.get(upstream)
        combined = condition if existing is None else _conjunction(existing.on, condition)
        if combined is None:
            # The replay would have to succeed and to fail. The old upstream has already ended
            # otherwise than required, so depending on it cancels the task for good.
            upstream, combined = edge.upstream_id, condition
        ref = edge.ref if existing is None else existing.ref or edge.ref
        task_links[upstream] = UpstreamLink(combined, ref)
    return links


def _current_upstream(replay_set: ReplaySet, edge: UpstreamEdge) -> int:
    """Return the upstream, or its replay if it ended otherwise than the edge requires."""
    if edge.is_met is False:
        return replay_set.replays.get(edge.upstream_id, edge.upstream_id)
    return edge.upstream_id


def _conjunction(first: Condition, other: Condition) -> Condition | None:
    """Return the condition that holds when both do; None when they never do."""
    if first is other or other is Condition.ALWAYS:
        return first
    return other if first is Condition.ALWAYS else None


def _linked_specs(
    upstreams: Mapping[int, Mapping[int, UpstreamLink]], specs: Iterable[TaskSpec]
) -> list[TaskSpec]:
    """Return specs that refer to each other by names unique within the set."""
    names = {old: f"place-{place}" for place, old in enumerate(upstreams)}
    return [
        msgspec.structs.replace(
            spec,
            ref=names[old],
            depends_on=[
                Dependency(names.get(upstream, str(upstream)), link.on)
                for upstream, link in links.items()
            ],
        )
        for (old, links), spec in zip(upstreams.items(), specs, strict=True)
    ]
