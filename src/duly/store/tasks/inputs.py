"""Inputs: the results that a task's upstreams have left, under the names that it knows them by.

A result lies where its task ended, and is read through the edge. Nothing is copied when a
task ends: who has a thousand dependants would leave a thousand copies.
"""

from collections.abc import Mapping, Sequence

import msgspec

from duly.model.task import Payload
from duly.store.database import Connection, load_statements

SQL = load_statements("inputs.sql")
LOOKED_AT = 100
"""Upstreams of a task that are looked at to find out whether there is a result among them."""


class Input(msgspec.Struct, frozen=True):
    """The result of an upstream, as JSON, and what its dependant calls it: its ref, or its id."""

    upstream: int
    name: str
    result: str


async def read_having(conn: Connection, payloads: Mapping[int, Payload]) -> set[int]:
    """Return which tasks have inputs, or so many upstreams that they may have.

    Without upstreams among them there is no round trip.
    """
    asked = [task for task, payload in payloads.items() if payload.has_upstreams]
    if not asked:
        return set()
    rows = await conn.fetch(SQL["read_having"], asked, LOOKED_AT)
    return {row["id"] for row in rows}


async def read(
    conn: Connection, task: int, *, above: int, limit: int, enough: int
) -> tuple[list[Input], int | None]:
    """Return inputs of a task from `above` an upstream on, and above which there may be more.

    They are at most `limit`, and the last of them is the one with which `enough` bytes are reached.
    """
    rows = await conn.fetch(SQL["read_inputs"], task, above, limit, enough)
    found = [Input(row["upstream_id"], row["name"], row["result"]) for row in rows]
    is_full = len(found) == limit or sum(len(one.result.encode()) for one in found) >= enough
    return found, found[-1].upstream if is_full else None


async def name_by_ref(conn: Connection, edges: Sequence[tuple[int, int, str | None]]) -> None:
    """Let dependants find their upstreams' results by these refs, where that is what they are."""
    dependants, upstreams, refs = zip(*edges, strict=True)
    await conn.execute(SQL["name_by_ref"], dependants, upstreams, refs)


async def copy_ended(conn: Connection, tenant_id: int, task: int, replay: int) -> None:
    """Give a replay the inputs of the task that it repeats."""
    await conn.execute(SQL["copy_ended"], tenant_id, task, replay)
