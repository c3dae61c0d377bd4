"""Lists attempts across tasks, newest lease first.

An attempt is listed by the time of its lease, which it keeps when it ends, so pages never shift.
A list is selected as (task, attempt) first, by the index that fits the filter, and then read. A
filter by user or by a common name has no index: one read examines a bounded number of attempts
and may return a short page with the place where it stopped.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import asyncpg
import msgspec

from duly.model.task import Outcome
from duly.store.database import Connection, load_statements
from duly.store.tasks.views import MAX_ID, AttemptView, attempt_fields

SQL = load_statements("attempt_list.sql")
MAX_EXAMINED = 10_000
"""Attempts that one read examines, of all tenants together; also a literal in the statements."""
MIN_EXAMINED_PER_TENANT = 500
"""However many tenants there are: a page ends where the busiest of them has been examined."""
MAX_NAMED_TASKS = MAX_EXAMINED
"""If more tasks have a name, its attempts are looked for among all attempts."""
FIRST_LEASE = datetime(1970, 1, 1, tzinfo=UTC)
LAST_LEASE = datetime(2262, 1, 1, tzinfo=UTC)


class ListedAttempt(AttemptView, frozen=True, kw_only=True):
    """An attempt with its task."""

    task: int
    name: str | None
    ref: str | None
    tenant: str
    user: str | None


class ListPosition(msgspec.Struct, frozen=True):
    """A place in the list: that of an attempt."""

    leased_at: datetime = LAST_LEASE
    task: int = MAX_ID


class AttemptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects attempts; all given conditions must hold. No outcome means any, or none yet."""

    outcomes: frozenset[Outcome] = frozenset()
    name: str | None = None
    """The name or the ref of the task."""
    user: str | None = None
    since: datetime | None = None
    """The earliest lease."""


class AttemptPage(msgspec.Struct, frozen=True):
    """The attempts of a page as (task, attempt), and where the list goes on, if it does."""

    picked: list[tuple[int, int]]
    end: ListPosition | None


async def read_tenants(conn: Connection, which: AttemptFilter) -> list[int]:
    """Return all tenants that can have matching attempts."""
    return [row["id"] for row in await conn.fetch(SQL["read_tenants"], which.user)]


async def pick(
    conn: Connection,
    tenant_ids: Sequence[int],
    which: AttemptFilter,
    *,
    after: ListPosition,
    limit: int,
) -> AttemptPage:
    """Select the newest matching attempts of some tenants that come after a position."""
    outcomes = sorted(which.outcomes) or None
    common = (
        list(tenant_ids),
        which.since or FIRST_LEASE,
        after.leased_at,
        after.task,
        outcomes,
        which.name,
        which.user,
    )
    named = None if which.name is None else await _find_named(conn, tenant_ids, which.name)
    if named is not None:
        rows = await conn.fetch(SQL["pick_of_tasks"], *common, named, limit + 1)
    else:
        statement = SQL["pick_unsuccessful" if _is_unsuccessful(which) else "pick"]
        examined = max(MAX_EXAMINED // max(len(tenant_ids), 1), MIN_EXAMINED_PER_TENANT)
        rows = await conn.fetch(statement, *common, examined, limit + 1)
    return page_of(rows, limit)


def page_of(rows: Sequence[asyncpg.Record], limit: int) -> AttemptPage:
    """Return the first matches of `rows`, up to the first end of a read of some tenant."""
    picked: list[tuple[int, int]] = []
    end: ListPosition | None = None
    for row in rows:
        if len(picked) == limit:
            return AttemptPage(picked, end)
        end = ListPosition(row["leased_at"], row["task_id"])
        if row["is_match"]:
            picked.append((row["task_id"], row["attempt"]))
        if row["is_end"]:
            return AttemptPage(picked, end)
    return AttemptPage(picked, None)


async def read(
    conn: Connection, tenant_id: int | None, picked: Sequence[tuple[int, int]]
) -> list[ListedAttempt]:
    """Return attempts with their tasks; of all tenants if the connection may read them."""
    tasks = [task for task, _ in picked]
    attempts = [attempt for _, attempt in picked]
    rows = await conn.fetch(SQL["read"], tenant_id, tasks, attempts)
    return [ListedAttempt(**attempt_fields(row)) for row in rows]


def _is_unsuccessful(which: AttemptFilter) -> bool:
    return bool(which.outcomes) and Outcome.SUCCEEDED not in which.outcomes


async def _find_named(conn: Connection, tenant_ids: Sequence[int], name: str) -> list[int] | None:
    """Return the tasks with a name or ref; None if there are more than it pays to look up."""
    rows = await conn.fetch(SQL["find_named"], list(tenant_ids), name, MAX_NAMED_TASKS + 1)
    return None if len(rows) > MAX_NAMED_TASKS else [row["id"] for row in rows]
