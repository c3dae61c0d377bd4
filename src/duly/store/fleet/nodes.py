"""Nodes, their incarnations, and the attempts that each should be running."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from duly.model.node import AbsentNode
from duly.model.resources import Resources
from duly.model.task import Payload
from duly.store.database import Connection, load_statements
from duly.store.records import read_as
from duly.store.tasks import inputs

SQL = load_statements("nodes.sql")
MAX_ABSENT = 1000
"""Bounds the absent nodes that an explanation considers."""


class Node(msgspec.Struct, frozen=True):
    """A node identified by its key; a removed node is still found, to be refused."""

    id: int
    name: str
    is_removed: bool = False
    tenant_id: int | None = None
    """The tenant of a worker; None for an agent."""


class JoinToken(msgspec.Struct, frozen=True):
    """A join token, and how many more nodes it admits; None means any number."""

    uses_left: int | None


class ExpectedAttempt(msgspec.Struct, frozen=True):
    """An attempt that an incarnation should be running, and whether it should stop."""

    id: int
    attempt: int
    token: int
    is_cancelled: bool
    is_overdue: bool
    is_marked: bool = False
    """Whether its task has been marked: the attempt only has to end."""


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
    """Store the SHA-256 of a join token for `uses` nodes; None means any number."""
    await conn.execute(SQL["add_token"], digest, lasts, uses)


async def find_token(conn: Connection, digest: bytes) -> JoinToken | None:
    """Return a join token that has not expired, used up or not."""
    row = await conn.fetchrow(SQL["find_token"], digest)
    return None if row is None else JoinToken(row["uses_left"])


async def use_token(conn: Connection, digest: bytes) -> bool:
    """Take one of the uses of a token that has a limited number; False when none is left."""
    return await conn.fetchval(SQL["use_token"], digest) is not None


async def add(
    conn: Connection,
    name: str,
    key: bytes,
    labels: dict[str, str],
    *,
    tenant_id: int | None = None,
) -> int | None:
    """Add a node, with `tenant_id` a worker, and return its id; None if name or key is taken."""
    node: int | None = await conn.fetchval(SQL["add_node"], name, key, labels, tenant_id)
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
    functions: list[str] | None = None,
) -> int | None:
    """Begin a new incarnation of the node, end the one before, and return the new one's id.

    A worker knows `functions`. None means that the node has been removed meanwhile.
    """
    fresh: int | None = await conn.fetchval(
        SQL["join_node"],
        node_id,
        msgspec.to_builtins(capacity),
        labels,
        isolation,
        version,
        ttl,
        functions,
    )
    if fresh is not None:
        await conn.execute(SQL["note_enforcement"], node_id, enforcement)
    return fresh


class Heartbeat(NamedTuple):
    """A heartbeat of an incarnation, with the state that it reports."""

    incarnation_id: int
    node_id: int
    is_stopping: bool = False
    shortage: str | None = None
    slots: int | None = None
    """How many slots a worker offers from now on."""


async def renew(conn: Connection, beats: Sequence[Heartbeat], *, ttl: timedelta) -> set[int]:
    """Renew the leases of incarnations; return the incarnations that are still alive."""
    rows = await conn.fetch(
        SQL["renew"],
        [beat.incarnation_id for beat in beats],
        [beat.node_id for beat in beats],
        [beat.is_stopping for beat in beats],
        [beat.shortage for beat in beats],
        ttl,
        [beat.slots for beat in beats],
    )
    return {row["id"] for row in rows}


async def lock_incarnation(conn: Connection, incarnation: int, node_id: int) -> bool:
    """Lock a live incarnation of the node against leases on it; False when there is none."""
    return bool(await conn.fetchval(SQL["lock_incarnation"], incarnation, node_id))


async def end_incarnation(conn: Connection, incarnation: int, reason: str) -> None:
    """End a locked incarnation."""
    await conn.execute(SQL["end_incarnation"], incarnation, reason)


async def name_of(conn: Connection, node_id: int) -> str:
    """Return a node's name; empty if there is no such node."""
    return str(await conn.fetchval(SQL["name_of"], node_id) or "")


async def read_absent(conn: Connection, *, only_removed: bool = False) -> list[AbsentNode]:
    """Return nodes that are down or removed, down ones and the latest first."""
    rows = await conn.fetch(SQL["read_absent"], MAX_ABSENT, only_removed)
    return [msgspec.convert(dict(row), AbsentNode) for row in rows]


async def drain(conn: Connection, node_id: int, *, draining: bool) -> bool:
    """Start or stop draining a node; False if there is no such node."""
    return bool(await conn.fetchval(SQL["drain"], node_id, draining))


async def remove(conn: Connection, node_id: int) -> bool:
    """Remove a node and end its incarnation; False if there is no such node."""
    return bool(await conn.fetchval(SQL["remove"], node_id))


async def override_capacity(conn: Connection, node_id: int, kinds: Mapping[str, Any]) -> bool:
    """Override the declared capacity of a node for some kinds; False if there is no such node."""
    return bool(await conn.fetchval(SQL["override_capacity"], node_id, kinds))


async def read_records(conn: Connection, *, window: timedelta) -> dict[int, tuple[int, int, int]]:
    """Return (failures, losses, joins) of nodes within the last `window`."""
    rows = await conn.fetch(SQL["read_records"], window)
    return {row["node_id"]: (row["failures"], row["losses"], row["joins"]) for row in rows}


async def read_expected(
    conn: Connection, incarnation: int, node_id: int, above: int, tasks: Sequence[int]
) -> list[ExpectedAttempt] | None:
    """Return the attempts that an incarnation should be running: above a token, and named tasks.

    None means that the incarnation has ended or belongs to another node.
    """
    rows = await conn.fetch(SQL["read_expected"], incarnation, node_id, above, list(tasks))
    if not rows:
        return None
    return read_as(ExpectedAttempt, [row for row in rows if row["id"] is not None])


async def read_starts(conn: Connection, incarnation: int, tasks: Sequence[int]) -> list[Start]:
    """Return what is needed to start attempts that an incarnation holds."""
    rows = await conn.fetch(SQL["read_starts"], incarnation, list(tasks))
    payloads = {row["id"]: msgspec.convert(row["payload"], Payload) for row in rows}
    having = await inputs.read_tasks_with_inputs(conn, payloads)
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
    """Return True if the node still holds the lease (task, attempt, token)."""
    return bool(await conn.fetchval(SQL["holds_attempt"], node_id, *ref))


async def extend_backstop(
    conn: Connection,
    node_id: int,
    refs: Sequence[tuple[int, int, int]],
    *,
    backstop: timedelta,
    slack: timedelta,
    longest: timedelta,
) -> None:
    """Extend the kill time of a node's attempts that have not begun."""
    tasks, attempts, tokens = ([ref[column] for ref in refs] for column in range(3))
    await conn.execute(
        SQL["extend_backstop"], node_id, tasks, attempts, tokens, backstop, slack, longest
    )
