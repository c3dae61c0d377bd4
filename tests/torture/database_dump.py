"""The contents of the database at the end of a run, as values.

The dump can be saved to a file, so that a run can be judged later without its database.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from tests.torture import journal
from tests.torture.journal import Step


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of tasks."""

    id: int
    tenant_id: int = 1
    shape_id: int = 1
    name: str | None = None
    payload: dict[str, Any] = {}
    labels: dict[str, str] = {}
    execution_cap: float = 86400.0
    max_attempts: int = 3
    on_lost: str = "retry"
    priority: int = 0
    idempotency_key: str | None = None
    replay_of: int | None = None
    run_at: datetime | None = None
    graph_id: int | None = None
    ref: str | None = None

    @property
    def source(self) -> str:
        return self.payload.get("source") or ""


class LiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task that has not ended."""

    id: int
    status: str = "waiting"
    shape_id: int = 1
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    token: int | None = None
    incarnation_id: int | None = None
    ready_ago: float = 0.0
    """Seconds since it was ready to start, by PostgreSQL's clock."""


class EndRow(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended."""

    task_id: int
    status: str = "done"
    outcome: str | None = "succeeded"
    reason: str | None = None
    attempt: int = 1
    failures: int = 0
    losses: int = 0


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    task_id: int
    attempt: int = 1
    token: int = 1
    node_id: int = 1
    incarnation_id: int = 1
    outcome: str = "succeeded"
    exit_code: int | None = None
    reason: str | None = None
    wall_seconds: float | None = None


class IncarnationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An incarnation of an agent."""

    id: int
    node_id: int = 1
    capacity: dict[str, Any] = {}
    ended_at: datetime | None = None
    is_late: bool = False
    """Whether its lease has expired and it was not ended."""


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    id: int
    name: str
    capacity_override: dict[str, Any] = {}
    draining: bool = False
    removed_at: datetime | None = None


class SubmissionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The task or batch of an idempotency key."""

    tenant_id: int = 1
    key: str
    task_id: int
    batch: list[int] | None = None


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """The concurrency quota of a tenant; None means no limit."""

    id: int
    max_running: int | None = None
    max_resources: dict[str, int] | None = None


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a task."""

    task_id: int
    kind: str


class EdgeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency of a task, with its condition."""

    dependant_id: int
    upstream_id: int
    condition: str = "success"


class GraphRow(msgspec.Struct, frozen=True, kw_only=True):
    """A graph and its tasks."""

    id: int
    name: str | None = None
    task_ids: list[int] = []


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that was not removed, and its next fire time."""

    id: int
    next_run_at: datetime | None = None
    paused: bool = False
    due_ago: float = 0.0
    """Seconds since its next fire time, by PostgreSQL's clock."""


class OccurrenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrence of a fire time, or of several missed ones in a row."""

    schedule_id: int
    fire_at: datetime
    task_id: int | None = None
    graph_id: int | None = None
    reason: str | None = None
    last_at: datetime | None = None
    times: int = 1

    @property
    def result_text(self) -> str | None:
        """Return a description of the task or graph; None if there is none."""
        if self.graph_id is not None:
            return f"the graph {self.graph_id}"
        return None if self.task_id is None else f"the task {self.task_id}"


class DatabaseDump(msgspec.Struct, frozen=True, kw_only=True):
    """All tables, and the journal of their changes."""

    tasks: list[TaskRow] = []
    live: list[LiveRow] = []
    ends: list[EndRow] = []
    attempts: list[AttemptRow] = []
    incarnations: list[IncarnationRow] = []
    nodes: list[NodeRow] = []
    submissions: list[SubmissionRow] = []
    events: list[EventRow] = []
    edges: list[EdgeRow] = []
    graphs: list[GraphRow] = []
    schedules: list[ScheduleRow] = []
    occurrences: list[OccurrenceRow] = []
    dead_letters: list[int] = []
    tenants: list[TenantRow] = []
    shapes: dict[int, dict[str, Any]] = {}
    keys: dict[int, dict[str, Any]] = {}
    """The concurrency keys and limits of shapes, by shape."""
    journal: list[Step] = []

    def save(self, path: Path) -> None:
        """Write the dump to a file."""
        path.write_bytes(msgspec.msgpack.encode(self))


STATEMENTS: Mapping[str, tuple[type[msgspec.Struct], str]] = {
    "tasks": (
        TaskRow,
        "select id, tenant_id, shape_id, name, payload, labels, max_attempts, on_lost, priority,"
        " extract(epoch from execution_cap)::float8 as execution_cap, idempotency_key, replay_of,"
        " run_at, graph_id, ref"
        " from duly.tasks order by id",
    ),
    "live": (
        LiveRow,
        "select id, status::text, shape_id, attempt, failures, losses, token, incarnation_id,"
        " extract(epoch from clock_timestamp() - ready_at)::float8 as ready_ago"
        " from duly.live order by id",
    ),
    "ends": (
        EndRow,
        "select task_id, status::text, outcome::text, reason ->> 'code' as reason, attempt,"
        " failures, losses from duly.ends order by task_id",
    ),
    "attempts": (
        AttemptRow,
        "select task_id, attempt, token, node_id, incarnation_id, outcome::text, exit_code,"
        " reason ->> 'code' as reason, wall_seconds::float8 as wall_seconds"
        " from duly.attempts order by task_id, attempt",
    ),
    "incarnations": (
        IncarnationRow,
        "select id, node_id, capacity, ended_at,"
        " ended_at is null and expires_at < clock_timestamp() as is_late"
        " from duly.incarnations order by id",
    ),
    "nodes": (
        NodeRow,
        "select id, name, capacity_override, draining, removed_at from duly.nodes order by id",
    ),
    "submissions": (
        SubmissionRow,
        "select tenant_id, key, task_id, batch from duly.submissions order by tenant_id, key",
    ),
    "tenants": (
        TenantRow,
        "select tenant_id as id, max_running, max_resources from duly.tenants_with_plans",
    ),
    "edges": (
        EdgeRow,
        "select dependant_id, upstream_id, condition from duly.edges order by 1, 2",
    ),
    "graphs": (GraphRow, "select id, name, task_ids from duly.graphs order by id"),
    "schedules": (
        ScheduleRow,
        "select id, next_run_at, paused_at is not null as paused,"
        " coalesce(extract(epoch from clock_timestamp() - next_run_at), 0)::float8 as due_ago"
        " from duly.schedules order by id",
    ),
    "occurrences": (
        OccurrenceRow,
        "select schedule_id, fire_at, task_id, graph_id, reason ->> 'code' as reason, last_at,"
        " times"
        " from duly.occurrences order by schedule_id, fire_at",
    ),
    "events": (EventRow, "select task_id, kind from duly.events order by task_id, id"),
}


def read(dsn: str) -> DatabaseDump:
    """Read the dump from a database, in one snapshot."""
    return asyncio.run(_read(dsn))


def load(path: Path) -> DatabaseDump:
    """Read a dump from a file of `DatabaseDump.save`."""
    return msgspec.msgpack.decode(path.read_bytes(), type=DatabaseDump)


async def _read(dsn: str) -> DatabaseDump:
    conn = await asyncpg.connect(dsn)
    try:
        for kind in ("json", "jsonb"):
            await conn.set_type_codec(
                kind, schema="pg_catalog", encoder=str, decoder=msgspec.json.decode
            )
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            tables = {
                name: [row_type(**dict(row)) for row in await conn.fetch(statement)]
                for name, (row_type, statement) in STATEMENTS.items()
            }
            dead = await conn.fetch("select task_id from duly.dead_letters order by task_id")
            shapes = await conn.fetch("select id, needs, concurrency from duly.shapes")
            steps = await journal.read(conn)
        return DatabaseDump(
            **tables,  # type: ignore[arg-type]
            dead_letters=[row["task_id"] for row in dead],
            shapes={row["id"]: row["needs"] for row in shapes},
            keys={row["id"]: row["concurrency"] for row in shapes if row["concurrency"]},
            journal=steps,
        )
    finally:
        await conn.close()
