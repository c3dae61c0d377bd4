"""Tasks as they are admitted, changed and cancelled.

An insert is one statement for any number of tasks: it either stores a task with its
live row and its idempotency key, or finds the key taken and stores nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from duly.model.bucket import Bucket, Rate
from duly.model.graph import NOTHING, Ahead
from duly.model.shape import Shape
from duly.model.task import Status, TaskSpec
from duly.store.database import Connection, load_statements, sparse

SQL = load_statements("tasks.sql")


class NewTask(msgspec.Struct, frozen=True):
    """A task on its way into the store."""

    id: int
    tenant_id: int
    user_id: int | None
    shape_id: int
    spec: TaskSpec
    body_hash: bytes
    is_limited: bool = False
    """Whether it is charged to its tenant's bucket by the insert itself."""
    blocked_by: int = 0
    """How many edges it has; whoever inserts it makes them."""
    has_dependants: bool = False
    graph_id: int | None = None
    ahead: Ahead = NOTHING


class Stored(msgspec.Struct, frozen=True):
    """A task that was stored by this insert."""

    id: int
    submitted_at: datetime
    ready_at: datetime | None
    start_by: datetime | None
    status: Status | None


class Inserted(msgspec.Struct, frozen=True):
    """What an insert did: the tasks that it stored, and what is left in the buckets.

    A bucket that somebody else held is not among them, and no task of its tenant was stored.
    """

    stored: list[Stored]
    buckets: dict[int, Bucket | None]
    """By tenant; None when its plan has no rate any more."""
    held: dict[int, int]
    """Those that were left out for their unique key, and which task holds it."""
    gone: set[int]
    """The tenants that have been removed."""


class Submission(msgspec.Struct, frozen=True):
    """What an idempotency key stands for."""

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
    """What a stored task asks for."""

    spec: TaskSpec
    has_ended: bool


def shape_key(shape: Shape) -> str:
    """Return the text under which a shape is interned: the same for equal ones."""
    whole: object = (shape.needs, shape.requires) if shape.requires else shape.needs
    if shape.concurrency is not None:
        whole = shape.needs, shape.requires, shape.concurrency
    if shape.queue is not None:
        whole = shape.needs, shape.requires, shape.concurrency, shape.queue
    return msgspec.json.encode(whole, order="deterministic").decode()


async def intern_shapes(conn: Connection, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return the ids of shapes by their key, and make those that are new."""
    keys = sorted(shapes)
    await conn.execute(
        SQL["intern_shapes"],
        keys,
        [_json(shapes[key].needs) for key in keys],
        [_json(shapes[key].requires) for key in keys],
        [_json(asked) if (asked := shapes[key].concurrency) else None for key in keys],
        [shapes[key].queue for key in keys],
    )
    rows = await conn.fetch(SQL["shapes_by_key"], keys)
    return {row["key"]: row["id"] for row in rows}


async def insert(
    conn: Connection, tasks: Sequence[NewTask], *, server: int, tell: bool = True
) -> Inserted:
    """Store `tasks`; one left out of the answer has a key that is taken, or no token.

    Without `tell` the answer names no task: without keys nothing is left out, and asking costs
    time.
    """
    limited = sorted({task.tenant_id for task in tasks if task.is_limited})
    if any(task.spec.has_key for task in tasks):
        statement = "insert_tasks"
    else:
        statement = "insert_charged" if limited else "insert_plain"
    specs = [task.spec for task in tasks]
    terms: dict[tuple[Any, ...], int] = {}
    numbers = [terms.setdefault(_terms(task), len(terms) + 1) for task in tasks]
    rows = await conn.fetch(
        SQL[statement],
        [task.id for task in tasks],
        numbers,
        [_json(spec.payload) for spec in specs],
        sparse([spec.name for spec in specs]),
        sparse([_json(spec.labels) if spec.labels else None for spec in specs]),
        sparse([spec.run_at for spec in specs]),
        sparse([spec.idempotency_key for spec in specs]),
        sparse([task.body_hash or None for task in tasks]),
        sparse([spec.replay_of for spec in specs]),
        sparse([spec.unique and spec.unique.key for spec in specs]),
        sparse([spec.unique and spec.unique.lasts for spec in specs]),
        sparse([task.blocked_by or None for task in tasks]),
        sparse([task.has_dependants or None for task in tasks]),
        sparse([task.graph_id for task in tasks]),
        sparse([spec.ref for spec in specs]),
        sparse([task.ahead.path or None for task in tasks]),
        sparse([task.ahead.latest for task in tasks]),
        *map(list, zip(*terms, strict=True)),
        server,
        tell,
        *([] if statement == "insert_plain" else [limited]),
    )
    buckets = {row["tenant_id"]: _bucket(row) for row in rows if row["tenant_id"] is not None}
    if len(buckets) < len(limited):
        # Somebody has them locked, or they are not there; then the next try finds them. What was
        # stored stays stored, and must not be stored again because this fails.
        with suppress(asyncpg.PostgresError):
            await conn.execute(SQL["make_buckets"], [one for one in limited if one not in buckets])
    return Inserted(
        [_stored(row) for row in rows if row["submitted_at"] is not None],
        buckets,
        {row["id"]: row["held_by"] for row in rows if row["held_by"] is not None},
        {row["gone"] for row in rows if row["gone"] is not None},
    )


async def read_holder(conn: Connection, tenant_id: int, key: str) -> int | None:
    """Return the live task that holds a unique key, if there is one."""
    holder: int | None = await conn.fetchval(SQL["read_holder"], tenant_id, key)
    return holder


async def read_submissions(
    conn: Connection, keys: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], Submission]:
    """Return what is known under (tenant, idempotency key)."""
    rows = await conn.fetch(
        SQL["read_submissions"], [tenant for tenant, _ in keys], [key for _, key in keys]
    )
    return {(row["tenant_id"], row["key"]): Submission(**dict(row)) for row in rows}


async def claim_batch_key(
    conn: Connection, tenant_id: int, key: str, body_hash: bytes, ids: Sequence[int]
) -> bool:
    """Claim `key` for a whole batch; False when it was seen before."""
    claimed = await conn.fetchval(SQL["claim_batch_key"], tenant_id, key, body_hash, list(ids))
    return claimed is not None


async def set_batch(conn: Connection, tenant_id: int, key: str, ids: Sequence[int]) -> None:
    """Say which tasks a claimed key really stands for."""
    await conn.execute(SQL["set_batch"], tenant_id, key, list(ids))


async def read_admitted(conn: Connection, ids: Sequence[int]) -> list[Stored]:
    """Return which of `ids` have been stored, when the answer to their insert was lost."""
    rows = await conn.fetch(SQL["read_admitted"], list(ids))
    return [_stored(row) for row in rows]


async def read_spec(conn: Connection, tenant_id: int, task_id: int) -> StoredSpec | None:
    """Return what a task asks for; None when it is unknown or another tenant's."""
    return (await read_specs(conn, tenant_id, [task_id])).get(task_id)


async def read_specs(conn: Connection, tenant_id: int, ids: Sequence[int]) -> dict[int, StoredSpec]:
    """Return what tasks ask for, without those that are unknown or another tenant's."""
    rows = [dict(row) for row in await conn.fetch(SQL["read_specs"], tenant_id, list(ids))]
    return {
        row.pop("id"): StoredSpec(
            has_ended=row.pop("has_ended"), spec=msgspec.convert(row, TaskSpec)
        )
        for row in rows
    }


async def lock_unstarted(conn: Connection, tenant_id: int, task_id: int) -> Unstarted | None:
    """Lock a live task for a change; None when it has ended, or is another tenant's."""
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
) -> None:
    """Store what a locked task that has not started asks for from now on."""
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
        spec.unique and spec.unique.lasts,
    )


async def add_event(
    conn: Connection, task_id: int, tenant_id: int, kind: str, details: Mapping[str, object]
) -> None:
    """Note an unusual step in the life of a task."""
    await add_events(conn, tenant_id, kind, {task_id: details})


async def add_events(
    conn: Connection, tenant_id: int, kind: str, details: Mapping[int, Mapping[str, object]]
) -> None:
    """Note the same unusual step in the lives of tasks, with details of each."""
    many = len(details)
    told = [_json(one) for one in details.values()]
    await conn.execute(SQL["add_events"], list(details), [tenant_id] * many, [kind] * many, told)


async def request_cancel(
    conn: Connection, tenant_id: int, ids: Sequence[int]
) -> dict[int, int | None]:
    """Cancel tasks; return the live ones with the incarnation that runs each.

    That is None for those that have ended at once.
    """
    rows = await conn.fetch(SQL["request_cancel"], tenant_id, list(ids))
    return {row["id"]: row["incarnation_id"] for row in rows}


async def take_dead_letter(conn: Connection, tenant_id: int, task_id: int) -> bool:
    """Take a task out of the dead letters; False when it is not among them."""
    return bool(await conn.fetchval(SQL["take_dead_letter"], tenant_id, task_id))


def _terms(task: NewTask) -> tuple[Any, ...]:
    """Return what tasks that are submitted together mostly have in common."""
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
        task.ahead.patience,
    )


def _stored(row: asyncpg.Record) -> Stored:
    return Stored(
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
