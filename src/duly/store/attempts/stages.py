"""Stages that attempts record, and the children that they submit."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from duly.model.attempt_key import AttemptKey
from duly.model.tenant import Credential, Scope
from duly.store.accounts.plans import plan_of
from duly.store.database import Connection, load_statements

SQL = load_statements("stages.sql")


class Stage(msgspec.Struct, frozen=True):
    """A part of a task that was done once, and its result as JSON."""

    name: str
    attempt: int
    result: str
    recorded_at: datetime


class Saved(msgspec.Struct, frozen=True):
    """The result that is recorded under a name, if it is, and how large one may be."""

    result: str | None
    result_limit: int


async def save(
    conn: Connection,
    key: AttemptKey,
    name: str,
    result: str,
    *,
    max_stages: int,
    max_bytes: int,
    max_result: int,
) -> Saved | None:
    """Record a stage; None if the key is no longer valid. An earlier record is kept."""
    row = await conn.fetchrow(
        SQL["save"],
        key.task,
        key.attempt,
        key.token,
        key.digest,
        name,
        result,
        max_stages,
        max_bytes,
        max_result,
    )
    if row is None:
        return None
    # Read anew: another call may have recorded it while this one waited.
    recorded = row["result"] or await conn.fetchval(SQL["read_one"], key.task, name)
    return Saved(recorded, row["result_limit"])


async def read_all(conn: Connection, task_id: int, *, tenant_id: int | None = None) -> list[Stage]:
    """Return the stages of a task in the order in which they were recorded."""
    rows = await conn.fetch(SQL["read_all"], task_id, tenant_id)
    return [Stage(**dict(row)) for row in rows]


async def add_child(conn: Connection, key: AttemptKey, child: int) -> bool:
    """Link a task to the one whose attempt submits it; False if the key is no longer valid."""
    is_held = await conn.fetchval(
        SQL["add_child"], key.task, key.attempt, key.token, key.digest, child
    )
    return bool(is_held)


async def pick_children(
    conn: Connection, parent: int, tenant_id: int | None, *, before: int, limit: int
) -> Sequence[int]:
    """Return the ids of the newest children of a task below the id `before`."""
    rows = await conn.fetch(SQL["pick_children"], parent, tenant_id, before, limit)
    return [row["id"] for row in rows]


async def read_owner(conn: Connection, task_id: int) -> Credential | None:
    """Return what an attempt at a running task may submit as: its tenant, user and plan."""
    row = await conn.fetchrow(SQL["read_owner"], task_id)
    if row is None:
        return None
    return Credential(
        tenant_id=row["tenant_id"],
        tenant=row["tenant"],
        user_id=row["user_id"],
        user=row["user"],
        scopes=frozenset({Scope.SUBMIT}),
        plan=plan_of(row),
        is_suspended=row["suspended_at"] is not None,
        fair_users=row["fair_users"],
        actor=f"{row['tenant']}/task:{task_id}",
    )
