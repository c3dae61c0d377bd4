"""Nodes, their incarnations, and what each of them should be running."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from duly.model.resources import Resources
from duly.model.task import Payload
from duly.store import inputs
from duly.store.database import Connection, load_statements
from duly.store.records import read_as

SQL = load_statements("nodes.sql")


class Node(msgspec.Struct, frozen=True):
    """A node as its key names it; one that was removed is still known, to be refused."""

    id: int
    name: str
    is_removed: bool = False


class Token(msgspec.Struct, frozen=True):
    """A join token, and how many more nodes it admits; None means any number."""

    uses_left: int | None


class HeldAttempt(msgspec.Struct, frozen=True):
    """An attempt that an incarnation should be running, and whether it should stop."""

    id: int
    attempt: int
    token: int
    is_cancelled: bool
    is_overdue: bool


class Start(msgspec.Struct, frozen=True):
    """What an agent needs to start an attempt."""

    id: int
    attempt: int
    token: int
    execution_cap: timedelta
    payload: Payload
    needs: Resources
    idempotency_key: str
    tenant_id: int
    has_inputs: bool = False
    """Whether results of its upstreams are to be fetched first."""


async def add_token(conn: Connection, digest: bytes, *, lasts: timedelta, uses: int | None) -> None:
    """Store a join token, by its SHA-256; it admits `uses` nodes, or any number if that is None."""
    await conn.execute(SQL["add_token"], digest, lasts, uses)


async def find_token(conn: Connection, digest: bytes) -> Token | None:
    """Return a join token that has not expired, used up or not."""
    row = await conn.fetchrow(SQL["find_token"], digest)
    return None if row is None else Token(row["uses_left"])


async def use_token(conn: Connection, digest: bytes) -> bool:
    """Take one of the uses of a token that has a limited number; False when none is left."""
    return await conn.fetchval(SQL["use_token"], digest) is not None


async def add(conn: Connection, name: str, key: bytes, labels: dict[str, str]) -> int | None:
    """Make a node and return its id; None when the name or the key is taken."""
    node: int | None = await conn.fetchval(SQL["add_node"], name, key, labels)
    return node


async def by_key(conn: Connection, key: bytes) -> Node | None:
    """Return the node whose key has this SHA-256."""
    row = await conn.fetchrow(SQL["node_by_key"], key)
    return None if row is None else Node(**row)


async def join(
    conn: Connection,
    node_id: int,
    capacity: Resources,
    labels: dict[str, str],
    isolation: str,
    version: str,
    enforcement: dict[str, str],
    *,
    ttl: timedelta,
) -> int | None:
    """Begin a new incarnation of the node, end the one before, and return the new one's id.

    None means that the node has been removed meanwhile.
    """
    fresh: int | None = await conn.fetchval(
        SQL["join_node"], node_id, msgspec.to_builtins(capacity), labels, isolation, version, ttl
    )
    if fresh is not None:
        await conn.execute(SQL["note_enforcement"], node_id, enforcement)
    return fresh


class Beat(NamedTuple):
    """A sign of life of an incarnation, and what it says of itself."""

    incarnation_id: int
    node_id: int
    is_stopping: bool = False
    shortage: str | None = None


async def renew(conn: Connection, beats: Sequence[Beat], *, ttl: timedelta) -> set[int]:
    """Renew the leases of incarnations, and return those that are still alive."""
    rows = await conn.fetch(
        SQL["renew"],
        [beat.incarnation_id for beat in beats],
        [beat.node_id for beat in beats],
        [beat.is_stopping for beat in beats],
        [beat.shortage for beat in beats],
        ttl,
    )
    return {row["id"] for row in rows}


async def lock_incarnation(conn: Connection, incarnation: int, node_id: int) -> bool:
    """Lock a live incarnation of the node against leases on it; False when there is none."""
    return bool(await conn.fetchval(SQL["lock_incarnation"], incarnation, node_id))


async def end_incarnation(conn: Connection, incarnation: int, reason: str) -> None:
    """End a locked incarnation."""
    await conn.execute(SQL["end_incarnation"], incarnation, reason)


async def name_of(conn: Connection, node_id: int) -> str:
    """Return what a node is called; nothing when there is no such node."""
    return str(await conn.fetchval(SQL["name_of"], node_id) or "")


async def drain(conn: Connection, node_id: int, *, draining: bool) -> bool:
    """Begin or end the draining of a node; False when there is no such node."""
    return bool(await conn.fetchval(SQL["drain"], node_id, draining))


async def remove(conn: Connection, node_id: int) -> bool:
    """Take a node away for good and end its incarnation; False when there is no such node."""
    return bool(await conn.fetchval(SQL["remove"], node_id))


async def override_capacity(conn: Connection, node_id: int, kinds: Mapping[str, Any]) -> bool:
    """Say what a node has of some kinds, whatever its agent says; False when there is none."""
    return bool(await conn.fetchval(SQL["override_capacity"], node_id, kinds))


async def read_records(conn: Connection, *, window: timedelta) -> dict[int, tuple[int, int, int]]:
    """Return (failures, losses, joins) of nodes within the last `window`."""
    rows = await conn.fetch(SQL["read_records"], window)
    return {row["node_id"]: (row["failures"], row["losses"], row["joins"]) for row in rows}


async def read_held(
    conn: Connection, incarnation: int, node_id: int, above: int, tasks: Sequence[int]
) -> list[HeldAttempt] | None:
    """Return what an incarnation should be running: what came above a token, and named tasks.

    None says that it has ended, or is not the node's.
    """
    rows = await conn.fetch(SQL["read_held"], incarnation, node_id, above, list(tasks))
    if not rows:
        return None
    return read_as(HeldAttempt, [row for row in rows if row["id"] is not None])


async def read_assignments(conn: Connection, incarnation: int, tasks: Sequence[int]) -> list[Start]:
    """Return what is needed to start attempts that an incarnation holds."""
    rows = await conn.fetch(SQL["read_assignments"], incarnation, list(tasks))
    payloads = {row["id"]: msgspec.convert(row["payload"], Payload) for row in rows}
    having = await inputs.read_having(conn, payloads)
    return [
        Start(
            id=row["id"],
            attempt=row["attempt"],
            token=row["token"],
            execution_cap=row["execution_cap"],
            payload=payloads[row["id"]],
            needs=msgspec.convert(row["needs"], Resources),
            idempotency_key=row["idempotency_key"],
            tenant_id=row["tenant_id"],
            has_inputs=row["id"] in having,
        )
        for row in rows
    ]


async def holds_attempt(conn: Connection, node_id: int, ref: tuple[int, int, int]) -> bool:
    """Say whether (task, attempt, token) is still this node's to speak for."""
    return bool(await conn.fetchval(SQL["holds_attempt"], node_id, *ref))


async def prolong(
    conn: Connection,
    node_id: int,
    refs: Sequence[tuple[int, int, int]],
    *,
    backstop: timedelta,
    slack: timedelta,
    longest: timedelta,
) -> None:
    """Put off when attempts of a node are to be killed, because they have not begun."""
    tasks, attempts, tokens = ([ref[column] for ref in refs] for column in range(3))
    await conn.execute(SQL["prolong"], node_id, tasks, attempts, tokens, backstop, slack, longest)
