"""Servers, nodes and clients, made of the real components; time moves only on request.

All responses that actors receive are recorded in `acknowledged`.
"""

import itertools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import asyncpg
import msgspec

from duly import wire
from duly.errors import Conflict, Fenced
from duly.model.graph import Condition, Dependency
from duly.model.requests.mark_request import Mark
from duly.model.requests.task_request import TaskRequest, complete
from duly.model.resources import Resources
from duly.model.task import Outcome, Status, TaskSpec
from duly.model.tenant import Credential, Plan
from duly.store.accounts.tenants import digest
from duly.store.fleet import nodes
from duly.store.maintenance import audit
from tests.interleavings.acknowledgements import Acknowledgements, Answer
from tests.interleavings.participants import AUDIT_LATE_AFTER, Node, Server, make_server
from tests.interleavings.stepped_database import CURRENT, SteppedDatabase

PLAN = Plan(
    name="unlimited",
    delay_tolerance=timedelta(minutes=5),
    execution_cap=timedelta(hours=24),
    max_execution_cap=timedelta(days=36_525),
    weight=1,
)
CLIENT = Credential(
    tenant_id=1, tenant="default", user_id=None, user=None, scopes=frozenset(), plan=PLAN
)
DELETE_ALL = """
    delete from schedules; delete from occurrences;
    delete from live; delete from tasks; delete from attempts; delete from ends;
    delete from stopping_attempts;
    delete from events; delete from dead_letters; delete from submissions;
    delete from reservations; delete from incarnations; delete from nodes; delete from audits;
    delete from terms; delete from servers; delete from journal; delete from clock;
    delete from edges; delete from ended_upstreams; delete from graphs;
    delete from graph_operations; delete from artifact_uses; delete from artifacts
"""
NO_INCARNATION = -1
BATCH_SIZE = 3
"""Tasks in a batch with a key."""
TIERS = ("basic", "regular", "premium", "premium")
"""The last one fits on no node without a capacity override."""
CONDITIONS = (Condition.SUCCESS, Condition.SUCCESS, Condition.FAILURE, Condition.ALWAYS)
OUTCOMES = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CAPPED, Outcome.EXPIRED, Outcome.EXPIRED)


class World:
    """The system under test, for one seed."""

    def __init__(self, database: SteppedDatabase, monitor: asyncpg.Connection, rng: Random) -> None:
        self.acknowledged = Acknowledgements()
        self.servers: list[Server] = []
        self.nodes: list[Node] = []
        self.reserved: list[int] = []
        self.schedules: list[int] = []
        self.graphs: list[int] = []
        self.occurrences: list[list[int]] = []
        """The tasks of schedules that were run by hand."""
        self.rng = rng
        self.now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
        self.database = database
        self._monitor = monitor
        self._names = itertools.count(1)
        self._unstamped: list[Answer] = []
        self.has_changed = True
        """Whether anything changed since the last scheduling round."""
        self.has_placed = True
        """Whether there was a scheduling round since the last poll."""

    def is_idle(self, kind: str) -> bool:
        """Return True if an operation would probably have no effect now."""
        match kind:
            case "place":
                return not self.has_changed
            case "poll":
                return not self.has_placed
            case "report":
                return not any(node.held for node in self.nodes)
            case _:
                return False

    def monotonic(self) -> float:
        """Replace the clock of the machine by one that moves with PostgreSQL's."""
        return self.now.timestamp()

    async def begin(self) -> None:
        """Create two servers, of which the first leads, one or two nodes, and some tasks."""
        await self._monitor.execute(DELETE_ALL)
        await self._monitor.execute("insert into clock values ($1)", self.now)
        for _ in range(2):
            self.servers.append(self._server())
            await self.servers[-1].cluster_manager.tick()
        for _ in range(self.rng.choice((1, 1, 2))):
            await self._add_node()
        await self.submit_batch(self.servers[0], [None] * self.rng.randrange(2, 7))
        for _ in range(self.rng.choice((0, 1))):
            await self.servers[0].resource_manager.tick()
            for node in self.nodes:
                await self.poll(self.servers[0], node)

    def _server(self) -> Server:
        return make_server(f"server {next(self._names)}", self.database)

    def replace(self, server: Server) -> None:
        """Replace a server that was killed by a new one."""
        self.servers[self.servers.index(server)] = self._server()

    async def _add_node(self) -> None:
        node = await self.make_node()
        node.incarnation = (await self._join(node.name)).incarnation

    async def make_node(self) -> Node:
        """Create a node whose agent has not joined yet."""
        name = f"node-{next(self._names)}"
        async with self.database.connection() as conn:
            node_id = await nodes.add(conn, name, digest(name), {})
        assert node_id is not None
        self.nodes.append(Node(node_id, name, NO_INCARNATION))
        return self.nodes[-1]

    async def _join(self, name: str) -> wire.JoinResponse:
        capacity = Resources(cpu_milli=1500, memory_mb=32768, disk_mb=65536)
        request = wire.JoinRequest(name=name, capacity=wire.capacity(capacity))
        return await self._any_server().cluster_manager.join(name, request)

    def _any_server(self) -> Server:
        return self.rng.choice(self.servers)

    async def advance(self, by: timedelta) -> None:
        """Advance the time of PostgreSQL and of all processes."""
        self.now += by
        self.has_changed = True
        await self._monitor.execute("update clock set at = $1", self.now)

    def record(
        self, op: str, subject: int, value: bool = True, request: Answer | None = None
    ) -> Answer:
        """Record a response to an actor; `stamp` adds its position in the journal."""
        actor = CURRENT.get()
        answer = Answer(op, subject, value, request, actor and actor.pid)
        self.acknowledged.answers.append(answer)
        self._unstamped.append(answer)
        return answer

    async def stamp(self) -> None:
        """Set the journal position of the latest responses; called whenever all actors are idle."""
        if self._unstamped:
            position = await self._monitor.fetchval("select last_value from journal_seq_seq")
            for answer in self._unstamped:
                answer.position = position
            self._unstamped.clear()

    # The operations of actors, each from its first statement to its response.

    async def submit(self, server: Server, key: str | None) -> None:
        spec = spec_of(self.rng, key, run_at=self.now + timedelta(seconds=4))
        admitted = await server.submitter.submit(CLIENT, spec)
        self.acknowledged.submits.append((key, spec, admitted.id, admitted.created))

    async def submit_batch(self, server: Server, keys: list[str | None]) -> None:
        specs = [spec_of(self.rng, key) for key in keys]
        batch = await server.submitter.submit_batch(CLIENT, specs)
        self.has_changed = True
        for key, spec, task in zip(keys, specs, batch.ids, strict=True):
            self.acknowledged.submits.append((key, spec, task, False))

    async def submit_keyed_batch(self, server: Server, key: str, body: str) -> None:
        """Submit a batch under a key, possibly a repetition."""
        specs = [
            complete(TaskRequest(name=f"batch {number} of {body}", command=["true"]), PLAN)
            for number in range(BATCH_SIZE)
        ]
        batch = await server.submitter.submit_batch(CLIENT, specs, key=key)
        self.has_changed = True
        self.acknowledged.batches.append((body, batch.ids))

    async def submit_downstream(self, server: Server, upstreams: list[int]) -> None:
        """Submit a task that depends on others, which may have ended."""
        spec = msgspec.structs.replace(
            spec_of(self.rng, None),
            depends_on=[Dependency(str(task), self.rng.choice(CONDITIONS)) for task in upstreams],
        )
        admitted = await server.submitter.submit(CLIENT, spec)
        self.has_changed = True
        self.acknowledged.submits.append((None, spec, admitted.id, admitted.created))

    async def cancel(self, server: Server, task: int) -> None:
        cancelled = await server.canceller.cancel(CLIENT, [task])
        self.record("cancel", task, task in cancelled)

    async def mark(self, server: Server, task: int) -> None:
        status = self.rng.choice((Status.DONE, Status.FAILED))
        try:
            await server.marker.mark(CLIENT, task, Mark(status, "seen elsewhere", None))
        except Conflict:
            self.record("mark", task, False)
            return
        self.record("mark", task)
        self.acknowledged.marks.append((task, status))

    async def pause(self, server: Server, task: int) -> None:
        self.acknowledged.paused_alone.add(task)
        self.record("paused", task, task in await server.pauser.pause(CLIENT, [task]))

    async def resume(self, server: Server, task: int) -> None:
        self.acknowledged.paused_alone.add(task)
        resumed = await server.pauser.resume(CLIENT, [task])
        self.record("resumed", task, bool(resumed))
        self.has_changed = True

    async def update(self, server: Server, task: int) -> None:
        field = self.rng.choice(("priority", "name", "run_at"))
        value: Any = {
            "priority": next(self._names),
            "name": f"renamed {next(self._names)}",
            "run_at": self.rng.choice((None, self.now + timedelta(seconds=3))),
        }[field]
        await self._change(server, task, field, value)

    async def hurry(self, server: Server, task: int) -> None:
        """Change how long a task may wait, and what happens then."""
        changes = {
            "delay_tolerance": self.rng.choice((0, 1, 2, 600)),
            "on_overdue": self.rng.choice(("wait", "cancel")),
        }
        await server.updater.update(CLIENT, task, changes)
        self.has_changed = True

    async def resize(self, server: Server, task: int) -> None:
        await self._change(server, task, "tier", self.rng.choice(TIERS))

    async def _change(self, server: Server, task: int, field: str, value: Any) -> None:
        self.acknowledged.tried_updates.append((task, field, value))
        encoded = value.isoformat() if isinstance(value, datetime) else value
        await server.updater.update(CLIENT, task, {field: encoded})
        self.acknowledged.updates.append((task, field, value))
        self.has_changed = True

    async def poll(self, server: Server, node: Node) -> None:
        self.has_placed = False
        poll = wire.PollRequest(
            incarnation=node.incarnation, held=list(node.held), wait=0.0, latest=node.latest
        )
        try:
            response = await server.polls.answer(node.id, poll)
        except Fenced:
            self._drop_all(node)
            return
        if poll.incarnation == node.incarnation:
            for start in response.start:
                node.latest = max(node.latest, start.ref.token)
                node.held.setdefault(start.ref, self.rng.choice(OUTCOMES))
            self._apply_stops(node, response.stop)

    async def heartbeat(self, server: Server, node: Node, *, stopping: bool = False) -> None:
        incarnation = node.incarnation
        heartbeat = wire.Heartbeat(incarnation=incarnation, held=list(node.held))
        request = self.record("request", incarnation)
        try:
            await server.cluster_manager.renew(node.id, incarnation, stopping=stopping)
        except Fenced:
            self._drop_all(node)
            return
        self.record("renewed", incarnation, request=request)
        if stopping:
            self.record("stopping", incarnation)
        stops = await server.polls.stops_for(node.id, heartbeat)
        if incarnation == node.incarnation:
            self._apply_stops(node, stops)

    def _apply_stops(self, node: Node, stops: list[wire.Stop]) -> None:
        for stop in stops:
            if stop.why == "lost":
                if stop.ref in node.held:
                    node.past[stop.ref] = node.held.pop(stop.ref)
            elif stop.ref not in node.reported:
                node.held[stop.ref] = Outcome.CANCELLED

    def _drop_all(self, node: Node) -> None:
        node.past.update(node.held)
        node.held.clear()

    async def report(self, server: Server, node: Node) -> None:
        """Report some of the held attempts, and some that were reported or lost before."""
        refs = [*node.held.items(), *list(node.past.items())[-4:]]
        chosen = self.rng.sample(refs, min(len(refs), self.rng.choice((1, 2, 3))))
        node.reported.update(ref for ref, _ in chosen)
        self.acknowledged.tried_reports.update(ref for ref, _ in chosen)
        reports = [wire.AttemptReport(ref=ref, outcome=outcome) for ref, outcome in chosen]
        accepted = await server.queue_manager.report(node.id, reports)
        for (ref, outcome), is_accepted in zip(chosen, accepted, strict=True):
            node.held.pop(ref, None)
            node.past[ref] = outcome
            self.has_changed = True
            self.acknowledged.reports.append((ref, outcome, is_accepted))

    async def join(self, node: Node) -> None:
        """Restart the agent of a node, which drops its attempts."""
        self._drop_all(node)
        node.incarnation = 0
        joined = await self._join(node.name)
        node.incarnation = joined.incarnation
        self.has_changed = True

    async def leave(self, server: Server, node: Node) -> None:
        """Stop the agent of a node, which holds no attempts."""
        incarnation, node.incarnation = node.incarnation, NO_INCARNATION
        await server.cluster_manager.leave(node.id, incarnation)

    async def drain(self, server: Server, node: Node, draining: bool) -> None:
        request = self.record("request", node.id)
        await server.cluster_manager.drain(node.id, draining=draining)
        self.record("drain", node.id, draining, request)
        self.has_changed = True

    async def sweep(self, server: Server) -> None:
        term = server.cluster_manager.term
        request = self.record("request", 0)
        # The sweep skips ticks by measured duration, which is meaningless with a stepped clock.
        server.queue_manager._sweep.make_due()
        await server.queue_manager.tick()
        if term is not None:
            self.record("swept", term.number, request=request)

    async def repair(self, server: Server) -> None:
        """Repair all current findings at once, without confirming that they persist."""
        term = server.cluster_manager.term
        if term is None:
            return
        async with self.database.connection() as conn:
            piece = await audit.walk_live(
                conn, (0,), 1000, late=AUDIT_LATE_AFTER, grace=timedelta(0)
            )
        repaired = await server.repairer.repair(term, piece.findings)
        self.acknowledged.repairs += len(repaired)

    async def run_exclusively(
        self, server: Server, loop: str, work: Callable[[], Coroutine[None, None, Any]]
    ) -> None:
        """Run the tick of a server loop, which never runs twice concurrently."""
        server.busy.add(loop)
        if loop == "place":
            self.has_changed = False
        try:
            await work()
        finally:
            server.busy.discard(loop)
            self.has_placed = self.has_placed or loop == "place"
            self.has_changed = self.has_changed or loop in ("commit", "sweep")


def spec_of(rng: Random, key: str | None, run_at: datetime | None = None) -> TaskSpec:
    """Return a random task; a key has one of two bodies."""
    source = rng if key is None else Random(f"{key} {rng.random() < 0.15}")
    request = TaskRequest(
        name=f"task {source.randrange(1000)}",
        command=["true"],
        max_attempts=source.choice((1, 3, 3)),
        on_lost=source.choice(("retry", "retry", "fail")),
        priority=source.choice((0, 0, 1)),
    )
    spec = complete(request, PLAN)
    is_scheduled = run_at is not None and key is None and source.random() < 0.2
    return msgspec.structs.replace(
        spec, idempotency_key=key, run_at=run_at if is_scheduled else None
    )
