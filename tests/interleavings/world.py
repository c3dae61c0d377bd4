"""Servers, nodes and clients, made of the real components; time moves only when told to.

Everything that an actor is told is kept in `told`.
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
from tests.interleavings.acknowledgements import Answer, Told
from tests.interleavings.participants import LATE, Node, Server, make_server
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
CLEAN = """
    delete from schedules; delete from occurrences;
    delete from live; delete from tasks; delete from attempts; delete from ends;
    delete from stopping_attempts;
    delete from events; delete from dead_letters; delete from submissions;
    delete from reservations; delete from incarnations; delete from nodes; delete from audits;
    delete from terms; delete from servers; delete from journal; delete from clock;
    delete from edges; delete from ended_upstreams; delete from graphs;
    delete from graph_operations; delete from artifact_uses; delete from artifacts
"""
GONE = -1
BATCH = 3
"""How many tasks a batch with a key has."""
TIERS = ("basic", "regular", "premium", "premium")
"""The last one fits on no node, unless an administrator says otherwise."""
CONDITIONS = (Condition.SUCCESS, Condition.SUCCESS, Condition.FAILURE, Condition.ALWAYS)
ENDINGS = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CAPPED, Outcome.EXPIRED, Outcome.EXPIRED)


class World:
    """All of it, for one seed."""

    def __init__(
        self, database: SteppedDatabase, monitor: asyncpg.Connection, dice: Random
    ) -> None:
        self.told = Told()
        self.servers: list[Server] = []
        self.nodes: list[Node] = []
        self.reserved: list[int] = []
        self.schedules: list[int] = []
        self.graphs: list[int] = []
        self.occurrences: list[list[int]] = []
        """The tasks of those that were run out of turn."""
        self.dice = dice
        self.now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
        self.database = database
        self._monitor = monitor
        self._names = itertools.count(1)
        self._unstamped: list[Answer] = []
        self.is_stirred = True
        """Whether anything happened since the last round of placing."""
        self.is_placed = True
        """Whether there was a round of placing since the last poll."""

    def is_idle(self, kind: str) -> bool:
        """Say whether it would hardly do anything now, as far as can be guessed."""
        match kind:
            case "place":
                return not self.is_stirred
            case "poll":
                return not self.is_placed
            case "report":
                return not any(node.held for node in self.nodes)
            case _:
                return False

    def monotonic(self) -> float:
        """Stand in for the machine's clock: it moves with PostgreSQL's."""
        return self.now.timestamp()

    async def begin(self) -> None:
        """Make two servers, of which the first leads, a node or two, and some work on them."""
        await self._monitor.execute(CLEAN)
        await self._monitor.execute("insert into clock values ($1)", self.now)
        for _ in range(2):
            self.servers.append(self._server())
            await self.servers[-1].cluster_manager.tick()
        for _ in range(self.dice.choice((1, 1, 2))):
            await self._add_node()
        await self.submit_batch(self.servers[0], [None] * self.dice.randrange(2, 7))
        for _ in range(self.dice.choice((0, 1))):
            await self.servers[0].resource_manager.tick()
            for node in self.nodes:
                await self.poll(self.servers[0], node)

    def _server(self) -> Server:
        return make_server(f"server {next(self._names)}", self.database)

    def replace(self, server: Server) -> None:
        """Put a fresh server where one has died."""
        self.servers[self.servers.index(server)] = self._server()

    async def _add_node(self) -> None:
        node = await self.make_node()
        node.incarnation = (await self._join(node.name)).incarnation

    async def make_node(self) -> Node:
        """Make a node whose agent has not joined yet."""
        name = f"node-{next(self._names)}"
        async with self.database.connection() as conn:
            made = await nodes.add(conn, name, digest(name), {})
        assert made is not None
        self.nodes.append(Node(made, name, GONE))
        return self.nodes[-1]

    async def _join(self, name: str) -> wire.JoinResponse:
        capacity = Resources(cpu_milli=1500, memory_mb=32768, disk_mb=65536)
        request = wire.JoinRequest(name=name, capacity=wire.capacity(capacity))
        return await self._any_server().cluster_manager.join(name, request)

    def _any_server(self) -> Server:
        return self.dice.choice(self.servers)

    async def move(self, by: timedelta) -> None:
        """Let time pass, for PostgreSQL and for the processes alike."""
        self.now += by
        self.is_stirred = True
        await self._monitor.execute("update clock set at = $1", self.now)

    def tell(self, op: str, about: int, value: bool = True, asked: Answer | None = None) -> Answer:
        """Keep what an actor was told; `stamp` adds its place among the writes."""
        actor = CURRENT.get()
        answer = Answer(op, about, value, asked, actor and actor.pid)
        self.told.answers.append(answer)
        self._unstamped.append(answer)
        return answer

    async def stamp(self) -> None:
        """Say of the latest answers when they were given; called whenever all stand still."""
        if self._unstamped:
            place = await self._monitor.fetchval("select last_value from journal_seq_seq")
            for answer in self._unstamped:
                answer.place = place
            self._unstamped.clear()

    # What actors do. Each of these is one actor's work, from its first statement to its answer.

    async def submit(self, server: Server, key: str | None) -> None:
        spec = spec_of(self.dice, key, run_at=self.now + timedelta(seconds=4))
        answer = await server.submitter.submit(CLIENT, spec)
        self.told.submits.append((key, spec, answer.id, answer.created))

    async def submit_batch(self, server: Server, keys: list[str | None]) -> None:
        specs = [spec_of(self.dice, key) for key in keys]
        batch = await server.submitter.submit_batch(CLIENT, specs)
        self.is_stirred = True
        for key, spec, task in zip(keys, specs, batch.ids, strict=True):
            self.told.submits.append((key, spec, task, False))

    async def submit_whole(self, server: Server, key: str, body: str) -> None:
        """Submit a batch under a key, as a client does that does not know whether it has before."""
        specs = [
            complete(TaskRequest(name=f"batch {number} of {body}", command=["true"]), PLAN)
            for number in range(BATCH)
        ]
        batch = await server.submitter.submit_batch(CLIENT, specs, key=key)
        self.is_stirred = True
        self.told.batches.append((body, batch.ids))

    async def submit_after(self, server: Server, upstreams: list[int]) -> None:
        """Submit a task that waits for others, whatever has become of them by now."""
        spec = msgspec.structs.replace(
            spec_of(self.dice, None),
            depends_on=[Dependency(str(task), self.dice.choice(CONDITIONS)) for task in upstreams],
        )
        answer = await server.submitter.submit(CLIENT, spec)
        self.is_stirred = True
        self.told.submits.append((None, spec, answer.id, answer.created))

    async def cancel(self, server: Server, task: int) -> None:
        found = await server.canceller.cancel(CLIENT, [task])
        self.tell("cancel", task, task in found)

    async def mark(self, server: Server, task: int) -> None:
        status = self.dice.choice((Status.DONE, Status.FAILED))
        try:
            await server.marker.mark(CLIENT, task, Mark(status, "seen elsewhere", None))
        except Conflict:
            self.tell("mark", task, False)
            return
        self.tell("mark", task)
        self.told.marks.append((task, status))

    async def pause(self, server: Server, task: int) -> None:
        self.told.alone.add(task)
        self.tell("paused", task, task in await server.pauser.pause(CLIENT, [task]))

    async def resume(self, server: Server, task: int) -> None:
        self.told.alone.add(task)
        resumed = await server.pauser.resume(CLIENT, [task])
        self.tell("resumed", task, bool(resumed))
        self.is_stirred = True

    async def update(self, server: Server, task: int) -> None:
        what = self.dice.choice(("priority", "name", "run_at"))
        value: Any = {
            "priority": next(self._names),
            "name": f"renamed {next(self._names)}",
            "run_at": self.dice.choice((None, self.now + timedelta(seconds=3))),
        }[what]
        await self._change(server, task, what, value)

    async def resize(self, server: Server, task: int) -> None:
        await self._change(server, task, "tier", self.dice.choice(TIERS))

    async def _change(self, server: Server, task: int, what: str, value: Any) -> None:
        self.told.tried_updates.append((task, what, value))
        asked = value.isoformat() if isinstance(value, datetime) else value
        await server.updater.update(CLIENT, task, {what: asked})
        self.told.updates.append((task, what, value))
        self.is_stirred = True

    async def poll(self, server: Server, node: Node) -> None:
        self.is_placed = False
        poll = wire.PollRequest(
            incarnation=node.incarnation, held=list(node.held), wait=0.0, latest=node.latest
        )
        try:
            orders = await server.polls.answer(node.id, poll)
        except Fenced:
            self._drop_all(node)
            return
        if poll.incarnation == node.incarnation:
            for start in orders.start:
                node.latest = max(node.latest, start.ref.token)
                node.held.setdefault(start.ref, self.dice.choice(ENDINGS))
            self._obey(node, orders.stop)

    async def heartbeat(self, server: Server, node: Node, *, stopping: bool = False) -> None:
        incarnation = node.incarnation
        beat = wire.Heartbeat(incarnation=incarnation, held=list(node.held))
        asked = self.tell("asked", incarnation)
        try:
            await server.cluster_manager.renew(node.id, incarnation, stopping=stopping)
        except Fenced:
            self._drop_all(node)
            return
        self.tell("renewed", incarnation, asked=asked)
        if stopping:
            self.tell("stopping", incarnation)
        stops = await server.polls.stops_for(node.id, beat)
        if incarnation == node.incarnation:
            self._obey(node, stops)

    def _obey(self, node: Node, stops: list[wire.Stop]) -> None:
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
        """Report some of what is held, and again some of what was reported or lost before."""
        refs = [*node.held.items(), *list(node.past.items())[-4:]]
        chosen = self.dice.sample(refs, min(len(refs), self.dice.choice((1, 2, 3))))
        node.reported.update(ref for ref, _ in chosen)
        self.told.tried_reports.update(ref for ref, _ in chosen)
        reports = [wire.AttemptReport(ref=ref, outcome=outcome) for ref, outcome in chosen]
        accepted = await server.queue_manager.report(node.id, reports)
        for (ref, outcome), is_accepted in zip(chosen, accepted, strict=True):
            node.held.pop(ref, None)
            node.past[ref] = outcome
            self.is_stirred = True
            self.told.reports.append((ref, outcome, is_accepted))

    async def join(self, node: Node) -> None:
        """Start the node's agent anew; what it held is gone."""
        self._drop_all(node)
        node.incarnation = 0
        joined = await self._join(node.name)
        node.incarnation = joined.incarnation
        self.is_stirred = True

    async def leave(self, server: Server, node: Node) -> None:
        """Stop the node's agent, which holds nothing any more."""
        incarnation, node.incarnation = node.incarnation, GONE
        await server.cluster_manager.leave(node.id, incarnation)

    async def drain(self, server: Server, node: Node, draining: bool) -> None:
        asked = self.tell("asked", node.id)
        await server.cluster_manager.drain(node.id, draining=draining)
        self.tell("drain", node.id, draining, asked)
        self.is_stirred = True

    async def sweep(self, server: Server) -> None:
        term = server.cluster_manager.term
        asked = self.tell("asked", 0)
        # How long a look takes here says nothing: time passes between any two statements.
        server.queue_manager._sweep.make_due()
        await server.queue_manager.tick()
        if term is not None:
            self.tell("swept", term.number, asked=asked)

    async def repair(self, server: Server) -> None:
        """Repair at once whatever looks wrong at the moment, without making sure that it stays."""
        term = server.cluster_manager.term
        if term is None:
            return
        async with self.database.connection() as conn:
            piece = await audit.walk_live(conn, (0,), 1000, late=LATE, grace=timedelta(0))
        repaired = await server.repairer.repair(term, piece.findings)
        self.told.repairs += len(repaired)

    async def alone(
        self, server: Server, what: str, work: Callable[[], Coroutine[None, None, Any]]
    ) -> None:
        """Do what a loop of the server does: never twice at the same time."""
        server.busy.add(what)
        if what == "place":
            self.is_stirred = False
        try:
            await work()
        finally:
            server.busy.discard(what)
            self.is_placed = self.is_placed or what == "place"
            self.is_stirred = self.is_stirred or what in ("commit", "sweep")


def spec_of(dice: Random, key: str | None, run_at: datetime | None = None) -> TaskSpec:
    """Return something to submit; a key comes with one of two bodies."""
    choice = dice if key is None else Random(f"{key} {dice.random() < 0.15}")
    request = TaskRequest(
        name=f"task {choice.randrange(1000)}",
        command=["true"],
        max_attempts=choice.choice((1, 3, 3)),
        on_lost=choice.choice(("retry", "retry", "fail")),
        priority=choice.choice((0, 0, 1)),
    )
    spec = complete(request, PLAN)
    is_late = run_at is not None and key is None and choice.random() < 0.2
    return msgspec.structs.replace(spec, idempotency_key=key, run_at=run_at if is_late else None)
