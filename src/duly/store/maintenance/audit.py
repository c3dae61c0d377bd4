"""Reads for the self-audit: what there is, piece by piece, held against first principles."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.model.drift import Finding, Kind, Scope, Seen
from duly.model.resources import Resources
from duly.store.database import Connection, load_statements
from duly.store.records import read_as
from duly.store.servers import SCHEDULING

SQL = load_statements("audit.sql")

Place = tuple[Any, ...]
"""How far one has come in a table: the key of the last row."""


class Piece(msgspec.Struct, frozen=True):
    """What is wrong in a piece of a table, how large it was, and where the next one begins."""

    findings: list[Finding]
    looked_at: int
    last: Place | None
    """None at the end of the table."""


class Line(msgspec.Struct, frozen=True):
    """The first waiting task of a tenant and a shape."""

    tenant_id: int
    shape_id: int
    id: int
    attempt: int
    is_late: bool


class Declared(msgspec.Struct, frozen=True):
    """What an agent has found on its node, and that with what an administrator said instead."""

    incarnation_id: int
    node_id: int
    declared: Resources
    allowed: Resources


class Audit(msgspec.Struct, frozen=True):
    """The last complete round of a scope."""

    scope: Scope
    completed_at: datetime
    took: timedelta
    looked_at: int
    drift: dict[str, Seen]
    """By kind. Another version of the server may know other kinds."""
    repaired: int
    """How many things were ever repaired."""
    repaired_at: datetime | None


async def walk_live(
    conn: Connection, above: Place, limit: int, *, late: timedelta, grace: timedelta
) -> Piece:
    """Look at the next live tasks."""
    ids = await _ids(conn, "read_live_ids", above, limit)
    rows = await conn.fetch(SQL["examine_live"], ids, late, grace) if ids else []
    return Piece(_findings(rows), len(ids), _last(ids, limit))


async def walk_tasks(conn: Connection, above: Place, limit: int) -> Piece:
    """Look at the next tasks that are remembered."""
    ids = await _ids(conn, "read_task_ids", above, limit)
    rows = await conn.fetch(SQL["examine_tasks"], *above, ids[-1]) if ids else []
    return Piece(_findings(rows), len(ids), _last(ids, limit))


async def walk_letters(conn: Connection, above: Place, limit: int) -> Piece:
    """Look at the next dead letters."""
    ids = await _ids(conn, "read_letter_ids", above, limit)
    rows = await conn.fetch(SQL["examine_letters"], ids) if ids else []
    return Piece(_findings(rows), len(ids), _last(ids, limit))


async def walk_keys(conn: Connection, above: Place, limit: int, *, history: timedelta) -> Piece:
    """Look at what the next idempotency keys stand for."""
    keys = await conn.fetch(SQL["read_keys"], *above, limit, history)
    ids = [row["task_id"] for row in keys if row["is_kept"]]
    rows = await conn.fetch(SQL["examine_keys"], ids) if ids else []
    last = (keys[-1]["tenant_id"], keys[-1]["key"]) if len(keys) == limit else None
    return Piece(_findings(rows), len(keys), last)


async def read_lines(
    conn: Connection, above: Place, limit: int, *, late: timedelta
) -> tuple[list[Line], Place | None]:
    """Return the heads of the next lines, and where those after them begin."""
    lines = read_as(Line, await conn.fetch(SQL["read_lines"], *above, limit, late))
    return lines, (lines[-1].tenant_id, lines[-1].shape_id) if len(lines) == limit else None


async def examine_cluster(conn: Connection, *, late: timedelta) -> list[Finding]:
    """Return what is wrong with nodes, agents and the leader."""
    return _findings(await conn.fetch(SQL["examine_cluster"], late, SCHEDULING))


async def read_declared(conn: Connection) -> list[Declared]:
    """Return what every node with a living agent has."""
    return [
        Declared(
            row["id"],
            row["node_id"],
            msgspec.convert(row["capacity"], Resources),
            msgspec.convert({**row["capacity"], **row["capacity_override"]}, Resources),
        )
        for row in await conn.fetch(SQL["read_declared"])
    ]


async def publish(
    conn: Connection,
    scope: Scope,
    *,
    took: timedelta,
    looked_at: int,
    drift: Mapping[Kind, Seen],
    repaired: int,
) -> None:
    """Keep what a complete round has found, for every server to tell."""
    found = {kind.value: msgspec.to_builtins(seen) for kind, seen in drift.items()}
    await conn.execute(SQL["publish"], scope.value, took, looked_at, found, repaired)


async def read(conn: Connection) -> list[Audit]:
    """Return the last complete round of each scope."""
    return [msgspec.convert(dict(row), Audit) for row in await conn.fetch(SQL["read"])]


async def _ids(conn: Connection, name: str, above: Place, limit: int) -> list[int]:
    return [row["id"] for row in await conn.fetch(SQL[name], *above, limit)]


def _last(ids: Sequence[int], limit: int) -> Place | None:
    return (ids[-1],) if len(ids) == limit else None


def _findings(rows: Sequence[Any]) -> list[Finding]:
    return [Finding(Kind(row["kind"]), row["about"], row["evidence"] or "") for row in rows]
