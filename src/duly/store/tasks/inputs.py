"""Inputs: the results of a task's upstreams, under the names by which the task refers to them.

A result is stored once, with its task's end, and read through the edge. Nothing is copied when a
task ends: a thousand dependants would make a thousand copies.
"""

from collections.abc import Mapping, Sequence

import msgspec

from duly.model.task import Payload
from duly.store.database import Connection, load_statements

SQL = load_statements("inputs.sql")
MAX_UPSTREAMS_EXAMINED = 100
"""Upstreams checked for a result; a task with more is assumed to have inputs."""


class Input(msgspec.Struct, frozen=True):
    """The result of an upstream, as JSON, and its name in the dependant: its ref or its id."""

    upstream: int
    name: str
    result: str


async def read_tasks_with_inputs(conn: Connection, payloads: Mapping[int, Payload]) -> set[int]:
    """Return the tasks that have inputs, or too many upstreams to check.

    Makes no round trip if no task has upstreams.
    """
    dependants = [task for task, payload in payloads.items() if payload.has_upstreams]
    if not dependants:
        return set()
    rows = await conn.fetch(SQL["read_tasks_with_inputs"], dependants, MAX_UPSTREAMS_EXAMINED)
    return {row["id"] for row in rows}


async def read(
    conn: Connection, task: int, *, above: int, limit: int, enough: int
) -> tuple[list[Input], int | None]:
    """Return a page of a task's inputs above an upstream id, and the next cursor if there is more.

    A page ends after `limit` inputs, or with the input that reaches `enough` bytes.
    """
    rows = await conn.fetch(SQL["read_inputs"], task, above, limit, enough)
    page = [Input(row["upstream_id"], row["name"], row["result"]) for row in rows]
    is_full = len(page) == limit or sum(len(value.result.encode()) for value in page) >= enough
    return page, page[-1].upstream if is_full else None


async def name_by_ref(conn: Connection, edges: Sequence[tuple[int, int, str | None]]) -> None:
    """Store the refs by which dependants name their upstreams' results; None leaves the id."""
    dependants, upstreams, refs = zip(*edges, strict=True)
    await conn.execute(SQL["name_by_ref"], dependants, upstreams, refs)


async def copy_ended(conn: Connection, tenant_id: int, task: int, replay: int) -> None:
    """Copy the inputs of a task to its replay."""
    await conn.execute(SQL["copy_ended"], tenant_id, task, replay)
