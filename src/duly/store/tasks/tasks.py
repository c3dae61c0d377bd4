"""Stores, changes and cancels tasks.

An insert is one statement for any number of tasks. A task is stored together with its live row and
its idempotency key; if the key is taken, nothing is stored for it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from duly.model.bucket import Bucket, Rate
from duly.model.graph import NOTHING_INHERITED, InheritedUrgency
from duly.model.run_time import NO_ESTIMATE, RunTimeEstimate
from duly.model.shape import Shape
from duly.model.task import Status, TaskSpec
from duly.store.database import Connection, empty_if_all_none, load_statements

SQL = load_statements("tasks.sql")


class NewTask(msgspec.Struct, frozen=True):
    """A task to be stored."""

    id: int
    tenant_id: int
    user_id: int | None
    shape_id: int
    spec: TaskSpec
    body_hash: bytes
    is_limited: bool = False
    """Whether the insert charges its tenant's bucket."""
    blocked_by: int = 0
    """How many edges it has; the caller inserts them in the same transaction."""
    has_dependants: bool = False
    graph_id: int | None = None
    inherited: InheritedUrgency = NOTHING_INHERITED
    run_time: RunTimeEstimate = NO_ESTIMATE


class StoredTask(msgspec.Struct, frozen=True):
    """A task stored by this insert."""

    id: int
    submitted_at: datetime
    ready_at: datetime | None
    start_by: datetime | None
    status: Status | None


class InsertResult(msgspec.Struct, frozen=True):
    """The tasks that an insert has stored, and the buckets after it.

    A bucket locked by another transaction is missing, and no task of its tenant was stored.
    """

    stored: list[StoredTask]
    buckets: dict[int, Bucket | None]
    """By tenant; None if its plan no longer has a rate."""
    held: dict[int, int]
    """Tasks not stored because of their unique key, and the task that holds it."""
    gone: set[int]
    """Tenants that have been removed."""


class Submission(msgspec.Struct, frozen=True):
    """The task or batch recorded under an idempotency key."""

    tenant_id: int
    key: str
    body_hash: bytes
    task_id: int
    batch: list[int] | None


class Unstarted(msgspec.Struct, frozen=True):
    """A live task that is locked for a change."""

    status: Status
    ready_at: datetime
    now: datetime


class StoredSpec(msgspec.Struct, frozen=True):
    """The specification of a stored task."""

    spec: TaskSpec
    has_ended: bool


def shape_key(shape: Shape) -> str:
    """Return the canonical text under which a shape is interned."""
    fields: object = (shape.needs, shape.requires) if shape.requires else shape.needs
    if shape.concurrency is not None:
        fields = shape.needs, shape.requires, shape.concurrency
    if shape.queue is not None:
        fields = shape.needs, shape.requires, shape.concurrency, shape.queue
    if shape.user_id is not None:
        fields = shape.needs, shape.requires, shape.concurrency, shape.queue, shape.user_id
    if shape.uses:
        parts = shape.needs, shape.requires, shape.concurrency, shape.queue, shape.user_id
        fields = *parts, shape.uses
    if shape.function is not None:
        parts = shape.needs, shape.requires, shape.concurrency, shape.queue, shape.user_id
        fields = *parts, shape.uses, shape.function
    return msgspec.json.encode(fields, order="deterministic").decode()


async def intern_shapes(conn: Connection, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return the ids of shapes by key, inserting new ones."""
    keys = sorted(shapes)
    await conn.execute(
        SQL["intern_shapes"],
        keys,
        [_json(shapes[key].needs) for key in keys],
        [_json(shapes[key].requires) for key in keys],
        [_json(limit) if (limit := shapes[key].concurrency) else None for key in keys],
        [shapes[key].queue for key in keys],
        [shapes[key].user_id for key in keys],
        [_json(shapes[key].uses) for key in keys],
        [_json(called) if (called := shapes[key].function) else None for key in keys],
    )
    rows = await conn.fetch(SQL["shapes_by_key"], keys)
    return {row["key"]: row["id"] for row in rows}


async def insert(
    conn: Connection, tasks: Sequence[NewTask], *, server: int, returning: bool = True
) -> InsertResult:
    """Store `tasks`; a task missing from the result has a taken key, or its tenant had no token.

    With `returning=False` no stored tasks are returned: without keys all of them are stored, and
    returning rows costs time.
    """
    limited = sorted({task.tenant_id for task in tasks if task.is_limited})
    if any(task.spec.has_key for task in tasks):
        statement = "insert_tasks"
    else:
        statement = "insert_charged" if limited else "insert_plain"
    specs = [task.spec for task in tasks]
    common: dict[tuple[Any, ...], int] = {}
    numbers = [common.setdefault(_common_columns(task), len(common) + 1) for task in tasks]
    rows = await conn.fetch(
        SQL[statement],
        [task.id for task in tasks],
        numbers,
        [_json(spec.payload) for spec in specs],
        empty_if_all_none([spec.name for spec in specs]),
        empty_if_all_none([_json(spec.labels) if spec.labels else None for spec in specs]),
        empty_if_all_none([spec.run_at for spec in specs]),
        empty_if_all_none([spec.idempotency_key for spec in specs]),
        empty_if_all_none([task.body_hash or None for task in tasks]),
        empty_if_all_none([spec.replay_of for spec in specs]),
        empty_if_all_none([spec.unique and spec.unique.key for spec in specs]),
        empty_if_all_none([spec.unique and spec.unique.holds_while for spec in specs]),
        empty_if_all_none([task.blocked_by or None for task in tasks]),
        empty_if_all_none([task.has_dependants or None for task in tasks]),
        empty_if_all_none([task.graph_id for task in tasks]),
        empty_if_all_none([spec.ref for spec in specs]),
        empty_if_all_none([task.inherited.remaining_path or None for task in tasks]),
        empty_if_all_none([task.inherited.start_by for task in tasks]),
        empty_if_all_none([task.run_time.expected for task in tasks]),
        empty_if_all_none([task.run_time.bound for task in tasks]),
        *map(list, zip(*common, strict=True)),
        server,
        returning,
        *([] if statement == "insert_plain" else [limited]),
    )
    buckets = {row["tenant_id"]: _bucket(row) for row in rows if row["tenant_id"] is not None}
    if len(buckets) < len(limited):
        # Missing buckets are locked by another transaction, or do not exist yet. Create the latter
        # for the next try. The insert is committed: a failure here must not cause a retry of it.
        with suppress(asyncpg.PostgresError):
            await conn.execute(
                SQL["make_buckets"], [tenant for tenant in limited if tenant not in buckets]
            )
    return InsertResult(
        [_stored_task(row) for row in rows if row["submitted_at"] is not None],
        buckets,
        {row["id"]: row["held_by"] for row in rows if row["held_by"] is not None},
        {row["gone"] for row in rows if row["gone"] is not None},
    )


async def read_holder(conn: Connection, tenant_id: int, key: str) -> int | None:
    """Return the live task that holds a unique key, if any."""
    holder: int | None = await conn.fetchval(SQL["read_holder"], tenant_id, key)
    return holder


async def read_submissions(
    conn: Connection, keys: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], Submission]:
    """Return the submissions recorded under (tenant, idempotency key) pairs."""
    rows = await conn.fetch(
        SQL["read_submissions"], [tenant for tenant, _ in keys], [key for _, key in keys]
    )
    return {(row["tenant_id"], row["key"]): Submission(**dict(row)) for row in rows}


async def claim_batch_key(
    conn: Connection, tenant_id: int, key: str, body_hash: bytes, ids: Sequence[int]
) -> bool:
    """Claim an idempotency key for a batch; False if it was used before."""
    claimed = await conn.fetchval(SQL["claim_batch_key"], tenant_id, key, body_hash, list(ids))
    return claimed is not None


async def set_batch(conn: Connection, tenant_id: int, key: str, ids: Sequence[int]) -> None:
    """Store the tasks of a claimed batch key."""
    await conn.execute(SQL["set_batch"], tenant_id, key, list(ids))


async def read_admitted(conn: Connection, ids: Sequence[int]) -> list[StoredTask]:
    """Return the tasks among `ids` that exist, after the response to their insert was lost."""
    rows = await conn.fetch(SQL["read_admitted"], list(ids))
    return [_stored_task(row) for row in rows]


async def read_spec(conn: Connection, tenant_id: int, task_id: int) -> StoredSpec | None:
    """Return a task's specification; None if the tenant has no such task."""
    return (await read_specs(conn, tenant_id, [task_id])).get(task_id)


async def read_specs(conn: Connection, tenant_id: int, ids: Sequence[int]) -> dict[int, StoredSpec]:
    """Return the specifications of those tasks that the tenant has."""
    rows = [dict(row) for row in await conn.fetch(SQL["read_specs"], tenant_id, list(ids))]
    return {
        row.pop("id"): StoredSpec(
            has_ended=row.pop("has_ended"), spec=msgspec.convert(row, TaskSpec)
        )
        for row in rows
    }


async def lock_unstarted(conn: Connection, tenant_id: int, task_id: int) -> Unstarted | None:
    """Lock a live task for a change; None if the tenant has no such live task."""
    row = await conn.fetchrow(SQL["lock_unstarted"], tenant_id, task_id)
    return None if row is None else msgspec.convert(dict(row), Unstarted)


async def update(
    conn: Connection,
    task_id: int,
    shape_id: int,
    spec: TaskSpec,
    *,
    ready_at: datetime,
    now: datetime,
    run_time: RunTimeEstimate,
) -> None:
    """Store the new specification of a locked task that has not started."""
    await conn.execute(
        SQL["update_task"],
        task_id,
        shape_id,
        spec.name,
        spec.tier,
        _json(spec.payload),
        _json(spec.labels),
        spec.delay_tolerance,
        spec.execution_cap,
        spec.max_attempts,
        spec.on_lost,
        spec.priority,
        spec.run_at,
        ready_at,
        now,
        spec.unique and spec.unique.key,
        spec.unique and spec.unique.holds_while,
        run_time.expected,
        run_time.bound,
    )


async def add_event(
    conn: Connection, task_id: int, tenant_id: int, kind: str, details: Mapping[str, object]
) -> None:
    """Add an event to a task's history."""
    await add_events(conn, tenant_id, kind, {task_id: details})


async def add_events(
    conn: Connection, tenant_id: int, kind: str, details: Mapping[int, Mapping[str, object]]
) -> None:
    """Add an event of the same kind to the history of each task."""
    size = len(details)
    encoded = [_json(detail) for detail in details.values()]
    await conn.execute(SQL["add_events"], list(details), [tenant_id] * size, [kind] * size, encoded)


async def request_cancel(
    conn: Connection, tenant_id: int, ids: Sequence[int]
) -> dict[int, int | None]:
    """Request cancellation; return the affected tasks with the incarnation that runs each.

    The incarnation is None for a task that was not running and has ended at once.
    """
    rows = await conn.fetch(SQL["request_cancel"], tenant_id, list(ids))
    return {row["id"]: row["incarnation_id"] for row in rows}


async def remove_dead_letter(conn: Connection, tenant_id: int, task_id: int) -> bool:
    """Remove a task from the dead letters; False if it is not one."""
    return bool(await conn.fetchval(SQL["remove_dead_letter"], tenant_id, task_id))


def _common_columns(task: NewTask) -> tuple[Any, ...]:
    """Return the columns that tasks of one submission mostly share; they are sent only once."""
    spec = task.spec
    return (
        task.tenant_id,
        task.user_id,
        task.shape_id,
        spec.tier,
        spec.delay_tolerance,
        spec.execution_cap,
        spec.max_attempts,
        spec.on_lost,
        spec.priority,
        task.is_limited,
        task.inherited.tolerance,
    )


def _stored_task(row: asyncpg.Record) -> StoredTask:
    return StoredTask(
        row["id"],
        row["submitted_at"],
        row["ready_at"],
        row["start_by"],
        None if row["status"] is None else Status(row["status"]),
    )


def _bucket(row: asyncpg.Record) -> Bucket | None:
    if row["tokens"] is None:
        return None
    rate = Rate(row["tasks_per_hour"], row["burst"])
    return Bucket(rate, row["tokens"], row["filled_at"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
