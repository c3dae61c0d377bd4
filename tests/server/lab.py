"""Drives a server's components on a real database, with a clock that only tests move."""

import asyncio
import itertools
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from duly import wire
from duly.config import Settings
from duly.errors import DulyError
from duly.model.requests.amounts import ResourcesRequest
from duly.model.requests.task_request import ConcurrencyRequest, TaskRequest, complete
from duly.model.resources import Resources
from duly.model.task import Outcome, Reason, TaskSpec
from duly.model.tenant import Credential, Scope
from duly.server.components import Components, build
from duly.store.accounts import tenants
from duly.store.database import Database

CLOCK = """
    create table clock (at timestamptz not null);
    grant select on clock to public;
    insert into clock values (clock_timestamp());
    create or replace function now() returns timestamptz
        language sql volatile
        as 'select at from duly.clock';
"""
CLEAN = """
    delete from live; delete from tasks; delete from attempts; delete from ends;
    delete from stopping_attempts;
    delete from events; delete from dead_letters; delete from submissions;
    delete from reservations; delete from incarnations; delete from nodes; delete from node_tokens;
    delete from schedules; delete from occurrences;
    delete from terms; delete from servers; delete from audits; delete from keys; delete from users;
    delete from usage; delete from run_times; delete from former_specs; delete from buckets;
    delete from artifact_uses; delete from artifacts;
    delete from edges; delete from graphs; delete from graph_operations;
    delete from ended_upstreams; delete from downstreams;
    delete from tenants where name <> 'default';
    delete from queues where not is_built_in;
    update queues
       set max_share = null, opens_at = null, closes_at = null, paused_at = null, paused_by = null;
    alter table audit_log disable trigger user; delete from audit_log;
    alter table audit_log enable trigger user
"""
NAMES = itertools.count(1)
FAILURE = Reason("exit_code", "Exit code 1.")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


class Clock:
    """PostgreSQL's time and this process's, which move together."""

    def __init__(self, conn: asyncpg.Connection, now: datetime) -> None:
        self.now = now
        self._conn = conn

    def monotonic(self) -> float:
        return self.now.timestamp()

    async def move(self, by: timedelta) -> None:
        await self.set(self.now + by)

    async def set(self, at: datetime) -> None:
        self.now = at
        await self._conn.execute("update clock set at = $1", at)


class Node:
    """A node whose agent is driven by the test."""

    def __init__(
        self, components: Components, name: str, key: str, joined: wire.JoinResponse
    ) -> None:
        self.components = components
        self.name = name
        self.key = key
        self.id = joined.node
        self.incarnation = joined.incarnation
        self.latest = 0

    async def poll(self, *held: wire.AttemptRef, wait: float = 0) -> wire.PollResponse:
        """Poll, and process the response."""
        orders = await self.ask(*held, wait=wait)
        self.latest = max([self.latest, *(start.ref.token for start in orders.start)])
        return orders

    async def ask(self, *held: wire.AttemptRef, wait: float = 0) -> wire.PollResponse:
        """Poll, and lose the response."""
        poll = wire.PollRequest(
            incarnation=self.incarnation, held=list(held), wait=wait, latest=self.latest
        )
        return await self.components.polls.answer(self.id, poll)

    async def starts(self, *held: wire.AttemptRef) -> list[wire.AttemptRef]:
        """Return the attempts that the node has to start when it holds `held`."""
        return [start.ref for start in (await self.poll(*held)).start]

    async def stops(self, *held: wire.AttemptRef) -> list[wire.Stop]:
        return (await self.poll(*held)).stop

    async def heartbeat(self, *held: wire.AttemptRef, stopping: bool = False) -> list[wire.Stop]:
        """Renew the lease; return the attempts to stop."""
        await self.components.cluster_manager.renew(self.id, self.incarnation, stopping=stopping)
        beat = wire.Heartbeat(incarnation=self.incarnation, held=list(held))
        return await self.components.polls.stops_for(self.id, beat)

    async def report(
        self, ref: wire.AttemptRef, outcome: Outcome = Outcome.SUCCEEDED, **report: Any
    ) -> bool:
        """Report the end of an attempt; return whether it was accepted."""
        if outcome is Outcome.FAILED:
            report = {"exit_code": 1, "reason": FAILURE, **report}
        told = wire.AttemptReport(ref=ref, outcome=outcome, **report)
        return (await self.components.queue_manager.report(self.id, [told]))[0]


class Lab:
    """Drives one server tick by tick, and reads the database."""

    def __init__(
        self, database: Database, conn: asyncpg.Connection, clock: Clock, settings: Settings
    ) -> None:
        self.database = database
        self.conn = conn
        self.clock = clock
        self.settings = settings
        self.components = self.server(settings)
        self.client: Credential
        self.stranger: Credential

    def server(self, settings: Settings | None = None) -> Components:
        """Build another server's components; it holds no number yet."""
        return build(self.database, settings or self.settings, "memory:///")

    async def begin(self) -> None:
        """Make the first server the leader, and create a client of each of two tenants."""
        await self.components.cluster_manager.tick()
        await self.conn.execute("insert into tenants (name, plan) values ('acme', 'unlimited')")
        self.client = await self.credential("default")
        self.stranger = await self.credential("acme")

    async def credential(self, tenant: str) -> Credential:
        key = await self.key(tenant)
        return await self.components.authenticator.authenticate(key)

    async def key(self, tenant: str = "default") -> str:
        return await tenants.create_key(self.conn, tenant, "kim", [Scope.SUBMIT])

    # Nodes

    async def node(
        self,
        *,
        cpu: float = 4,
        memory_mb: int = 65_536,
        labels: dict[str, str] | None = None,
        by: Components | None = None,
    ) -> Node:
        """Let a node join for the first time, at this server or at another one."""
        manager = (by or self.components).cluster_manager
        name = f"node-{next(NAMES)}"
        capacity = capacity_of(cpu, memory_mb)
        token = await manager.create_token(timedelta(hours=1))
        key = tenants.generate_key("dulynode")
        joined = await manager.join(
            token,
            wire.JoinRequest(
                name=name, capacity=wire.capacity(capacity), labels=labels or {}, key=key
            ),
        )
        return Node(self.components, name, key, joined)

    async def rejoin(self, node: Node, *, cpu: float = 4, memory_mb: int = 65_536) -> Node:
        """Start the agent of a node anew; `node` is what its former incarnation was."""
        request = wire.JoinRequest(
            name=node.name, capacity=wire.capacity(capacity_of(cpu, memory_mb))
        )
        joined = await self.components.cluster_manager.join(node.key, request)
        return Node(self.components, node.name, node.key, joined)

    # Tasks

    def spec(self, *, cpu: float | None = None, **fields: Any) -> TaskSpec:
        """Return the spec of a task."""
        if cpu is not None:
            fields["resources"] = ResourcesRequest(cpu=cpu)
        if "concurrency" in fields:
            fields["concurrency"] = ConcurrencyRequest(**fields["concurrency"])
        if isinstance(fields.get("run_at"), datetime):
            fields["run_at"] = fields["run_at"].isoformat()
        return complete(TaskRequest(**{"command": ["true"], **fields}), self.client.plan)

    async def submit(self, *, by: Credential | None = None, **fields: Any) -> int:
        """Submit a task and return its id."""
        (answer,) = await self.submit_all([self.spec(**fields)], by=by)
        if isinstance(answer, DulyError):
            raise answer
        return int(answer.id)

    async def submit_all(
        self,
        specs: Iterable[TaskSpec],
        by: Credential | None = None,
        components: Components | None = None,
    ) -> list[Any]:
        """Submit `specs` at the same time; return the response to each."""
        submitter = (components or self.components).submitter
        specs = list(specs)
        if specs:
            # With their shapes cached, all of them are queued before the first commit.
            await submitter._shapes.get_or_create(specs)
        asked = [submitter.submit(by or self.client, spec) for spec in specs]
        return await answers(submitter, asked)

    async def schedule(self) -> None:
        """Run one scheduling round of the leader, and fail unplaceable tasks."""
        await self.components.cluster_manager.tick()
        await self.components.resource_manager.tick()
        await self.components.unplaceable.tick()

    async def sweep(self) -> None:
        """Make the leader release due tasks and take back lost attempts."""
        await self.components.cluster_manager.tick()
        await self.components.queue_manager.tick()

    async def silence(self, by: timedelta) -> None:
        """Let time pass in which the leader works and no node renews its lease."""
        await self.sweep()
        for _ in range(int(by.total_seconds())):
            await self.clock.move(seconds(1))
            await self.sweep()

    async def run(self, node: Node, **fields: Any) -> wire.AttemptRef:
        """Submit a task and start it on the node, which must be free."""
        task = await self.submit(**fields)
        return await self.start(node, task)

    async def start(self, node: Node, task: int) -> wire.AttemptRef:
        """Schedule, and return the attempt at `task` that the node is told to start."""
        await self.schedule()
        started = {ref.task: ref for ref in await node.starts()}
        return started[task]

    # What the database says

    async def live(self, task: int) -> asyncpg.Record | None:
        return await self.conn.fetchrow("select * from live where id = $1", task)

    async def end(self, task: int) -> asyncpg.Record | None:
        return await self.conn.fetchrow("select * from ends where task_id = $1", task)

    async def status(self, task: int) -> str | None:
        """Return the status of a task; None if it is not stored."""
        row = await self.live(task) or await self.end(task)
        return None if row is None else row["status"]

    async def attempts(self, task: int) -> list[tuple[int, str]]:
        """Return (attempt, outcome) of every attempt that has ended."""
        rows = await self.conn.fetch(
            "select attempt, outcome from attempts where task_id = $1 order by 1", task
        )
        return [(row["attempt"], row["outcome"]) for row in rows]

    async def tally(self, task: int) -> tuple[int, int]:
        """Return how often a task has failed, and been lost."""
        row = await self.live(task) or await self.end(task)
        assert row is not None
        return row["failures"], row["losses"]

    async def count(self, table: str) -> int:
        return await self.conn.fetchval(f"select count(*) from {table}")

    async def dead_letters(self) -> dict[int, str]:
        rows = await self.conn.fetch("select task_id, code from dead_letters")
        return {row["task_id"]: row["code"] for row in rows}

    async def run_on(self, node: Node) -> set[int]:
        """Return the tasks that run on a node."""
        rows = await self.conn.fetch("select id from live where node_id = $1", node.id)
        return {row["id"] for row in rows}


async def answers(submitter: Any, asked: Iterable[Awaitable[Any]]) -> list[Any]:
    """Commit until every request has a response; errors are responses, too."""
    waiting = asyncio.gather(*asked, return_exceptions=True)
    while not waiting.done():
        await asyncio.sleep(0)
        await submitter.tick()
    return await waiting


async def between_placing_and_leasing(lab: Lab, change: Awaitable[Any]) -> None:
    """Run one scheduling round with `change` between placing and leasing."""
    manager: Any = lab.components.resource_manager
    lease = manager._lease

    async def late(*arguments: Any) -> int:
        await change
        placed: int = await lease(*arguments)
        return placed

    manager._lease = late
    try:
        await lab.schedule()
    finally:
        manager._lease = lease


def capacity_of(cpu: float, memory_mb: int) -> Resources:
    return Resources(cpu_milli=int(cpu * 1000), memory_mb=memory_mb, disk_mb=1_000_000)


def reason_of(row: asyncpg.Record | None) -> dict[str, Any]:
    """Return the reason that a row gives."""
    assert row is not None
    return msgspec.json.decode(row["reason"])


def today() -> datetime:
    """Return a time to begin at, to the second."""
    return datetime.now(UTC).replace(microsecond=0)
