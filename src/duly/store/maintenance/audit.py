"""Reads of the self-audit: walks tables in batches and returns rows that violate an invariant."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.model.drift import AuditScope, DriftCount, DriftKind, Finding
from duly.model.resources import Resources
from duly.store.database import Connection, load_statements
from duly.store.fleet.servers import SCHEDULING
from duly.store.records import read_as

SQL = load_statements("audit.sql")

Cursor = tuple[Any, ...]
"""A position in a table: the key of the last row read."""


class AuditBatch(msgspec.Struct, frozen=True):
    """The findings in a batch of rows, its size, and the cursor of the next batch."""

    findings: list[Finding]
    looked_at: int
    last: Cursor | None
    """None at the end of the table."""


class SubqueueHead(msgspec.Struct, frozen=True):
    """The first waiting task of a subqueue."""

    tenant_id: int
    shape_id: int
    id: int
    attempt: int
    is_late: bool


class DeclaredCapacity(msgspec.Struct, frozen=True):
    """The capacity that an agent declared, and the same with the administrator's overrides."""

    incarnation_id: int
    node_id: int
    declared: Resources
    allowed: Resources


class Audit(msgspec.Struct, frozen=True):
    """The last complete round of a scope."""

    scope: AuditScope
    completed_at: datetime
    took: timedelta
    looked_at: int
    drift: dict[str, DriftCount]
    """By kind. Another version of the server may know other kinds."""
    repaired: int
    """How many things were ever repaired."""
    repaired_at: datetime | None


async def walk_live(
    conn: Connection, above: Cursor, limit: int, *, late: timedelta, grace: timedelta
) -> AuditBatch:
    """Examine the next live tasks."""
    ids = await _ids(conn, "read_live_ids", above, limit)
    rows = await conn.fetch(SQL["examine_live"], ids, late, grace) if ids else []
    return AuditBatch(_findings(rows), len(ids), _last(ids, limit))


async def walk_tasks(conn: Connection, above: Cursor, limit: int) -> AuditBatch:
    """Examine the next tasks in the history."""
    ids = await _ids(conn, "read_task_ids", above, limit)
    rows = await conn.fetch(SQL["examine_tasks"], *above, ids[-1]) if ids else []
    return AuditBatch(_findings(rows), len(ids), _last(ids, limit))


async def walk_dead_letters(conn: Connection, above: Cursor, limit: int) -> AuditBatch:
    """Examine the next dead letters."""
    ids = await _ids(conn, "read_dead_letter_ids", above, limit)
    rows = await conn.fetch(SQL["examine_dead_letters"], ids) if ids else []
    return AuditBatch(_findings(rows), len(ids), _last(ids, limit))


async def walk_keys(
    conn: Connection, above: Cursor, limit: int, *, history: timedelta
) -> AuditBatch:
    """Examine the next idempotency keys."""
    keys = await conn.fetch(SQL["read_keys"], *above, limit, history)
    ids = [row["task_id"] for row in keys if row["is_kept"]]
    rows = await conn.fetch(SQL["examine_keys"], ids) if ids else []
    last = (keys[-1]["tenant_id"], keys[-1]["key"]) if len(keys) == limit else None
    return AuditBatch(_findings(rows), len(keys), last)


async def read_subqueue_heads(
    conn: Connection, above: Cursor, limit: int, *, late: timedelta
) -> tuple[list[SubqueueHead], Cursor | None]:
    """Return the heads of the next subqueues, and the cursor if there are more."""
    lines = read_as(SubqueueHead, await conn.fetch(SQL["read_subqueue_heads"], *above, limit, late))
    return lines, (lines[-1].tenant_id, lines[-1].shape_id) if len(lines) == limit else None


async def examine_cluster(conn: Connection, *, late: timedelta) -> list[Finding]:
    """Return the findings about nodes, agents, attempts that stop, and the leader."""
    return _findings(await conn.fetch(SQL["examine_cluster"], late, SCHEDULING))


async def read_declared(conn: Connection) -> list[DeclaredCapacity]:
    """Return the declared capacity of every node with a live agent."""
    return [
        DeclaredCapacity(
            row["id"],
            row["node_id"],
            msgspec.convert(row["capacity"], Resources),
            msgspec.convert({**row["capacity"], **row["capacity_override"]}, Resources),
        )
        for row in await conn.fetch(SQL["read_declared"])
    ]


async def publish(
    conn: Connection,
    scope: AuditScope,
    *,
    took: timedelta,
    looked_at: int,
    drift: Mapping[DriftKind, DriftCount],
    repaired: int,
) -> None:
    """Store the result of a complete round, for every server to report."""
    found = {kind.value: msgspec.to_builtins(seen) for kind, seen in drift.items()}
    await conn.execute(SQL["publish"], scope.value, took, looked_at, found, repaired)


async def read(conn: Connection) -> list[Audit]:
    """Return the last complete round of each scope."""
    return [msgspec.convert(dict(row), Audit) for row in await conn.fetch(SQL["read"])]


async def _ids(conn: Connection, name: str, above: Cursor, limit: int) -> list[int]:
    return [row["id"] for row in await conn.fetch(SQL[name], *above, limit)]


def _last(ids: Sequence[int], limit: int) -> Cursor | None:
    return (ids[-1],) if len(ids) == limit else None


def _findings(rows: Sequence[Any]) -> list[Finding]:
    return [Finding(DriftKind(row["kind"]), row["about"], row["evidence"] or "") for row in rows]
