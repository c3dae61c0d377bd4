"""Schedules and their occurrences.

A fire time is claimed by the primary key of `occurrences`, in the transaction that stores its task
and advances the schedule. Writers of occurrences lock the schedule's row first, so that a claim
seldom conflicts.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from duly.errors import Invalid
from duly.model.bucket import Bucket, Rate
from duly.model.requests.recurrence_request import RecurrenceRequest, parse_recurrence
from duly.model.schedules.recurrence import Recurrence
from duly.model.schedules.schedule import Misfire, Overlap, ScheduleTemplate
from duly.model.task import Reason
from duly.model.tenant import Plan
from duly.store.accounts.buckets import StoredBucket
from duly.store.accounts.plans import plan_of
from duly.store.database import Connection, array_literal, empty_if_all_none, load_statements

SQL = load_statements("schedules.sql")
MAX_ID = 2**63 - 1


class DueSchedule(msgspec.Struct, frozen=True):
    """A locked schedule that is due."""

    template: ScheduleTemplate
    next_run_at: datetime
    open_tasks: list[int]
    """Submitted tasks that have not ended, if the overlap rule needs them."""
    open_graphs: list[int]
    """Submitted graphs with a task that has not ended."""
    now: datetime


class UnreadableSchedule(msgspec.Struct, frozen=True):
    """A locked schedule that this server cannot decode, though the server that stored it could."""

    id: int
    why: str


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrence to record for a fire time, or for several consecutive missed ones."""

    schedule_id: int
    fire_at: datetime
    tenant_id: int
    scheduling_type: str
    task_id: int | None = None
    graph_id: int | None = None
    reason: Reason | None = None
    last_at: datetime | None = None
    times: int = 1


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as its tenant sees it."""

    template: ScheduleTemplate
    name: str | None
    user: str | None
    written: dict[str, Any]
    """The recurrence as it was requested."""
    anchor: datetime
    next_run_at: datetime | None
    paused_at: datetime | None
    open_tasks: list[int]
    open_graphs: list[int]
    created_at: datetime
    updated_at: datetime


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a fire time, or of several consecutive missed ones."""

    fire_at: datetime
    task_id: int | None
    graph_id: int | None
    scheduling_type: str
    reason: Reason | None
    last_at: datetime | None
    times: int
    recorded_at: datetime


class Account(msgspec.Struct, frozen=True):
    """A tenant's plan and room at the time that one of its schedules fires."""

    tenant_id: int
    plan: Plan
    is_suspended: bool
    fair_users: bool
    """Whether its users divide its fair share."""
    room: int | None
    """How many more of its tasks may wait; None means no limit."""
    tokens: int | None = None
    """How many more tasks it may submit now; None means no limit."""


class NextFire(msgspec.Struct, frozen=True):
    """The next fire time of a schedule, and its tasks and graphs that have not ended."""

    next_run_at: datetime | None
    open_tasks: list[int]
    open_graphs: list[int]


async def until_due(conn: Connection, *, aside: Iterable[int] = ()) -> timedelta | None:
    """Return the time until the next schedule not in `aside` fires; None if there is none."""
    seconds = await conn.fetchval(SQL["next_due"], list(aside))
    return None if seconds is None else timedelta(seconds=max(0.0, seconds))


async def lock_due(
    conn: Connection, *, limit: int, without: Iterable[int] = (), aside: Iterable[int] = ()
) -> tuple[list[DueSchedule], list[UnreadableSchedule]]:
    """Lock due schedules, except those in `aside` and those of the tenants in `without`."""
    due: list[DueSchedule] = []
    unreadable: list[UnreadableSchedule] = []
    for row in await conn.fetch(SQL["lock_due"], limit, list(without), list(aside)):
        try:
            due.append(_due(row))
        except (Invalid, msgspec.ValidationError, ValueError) as error:
            unreadable.append(UnreadableSchedule(row["id"], str(error)))
    return due, unreadable


async def advance(conn: Connection, moved: Mapping[int, NextFire]) -> None:
    """Store the next fire times of locked schedules, and what has not ended of each."""
    await conn.execute(
        SQL["advance"],
        list(moved),
        [schedule.next_run_at for schedule in moved.values()],
        empty_if_all_none([_ids(schedule.open_tasks) for schedule in moved.values()]),
        empty_if_all_none([_ids(schedule.open_graphs) for schedule in moved.values()]),
    )


async def read_live_tasks_of_graphs(
    conn: Connection, graphs: Iterable[int]
) -> dict[int, list[int]]:
    """Return the live tasks of graphs, by graph; a graph that has ended is left out."""
    found: dict[int, list[int]] = {}
    for row in await conn.fetch(SQL["live_tasks_of_graphs"], list(graphs)):
        found.setdefault(row["graph_id"], []).append(row["id"])
    return found


async def read_live_tasks(conn: Connection, ids: Iterable[int]) -> set[int]:
    """Return which of the given tasks are live."""
    return {row["id"] for row in await conn.fetch(SQL["live_tasks"], list(ids))}


async def claim(
    conn: Connection, fires: Sequence[Fire], *, again: bool = False
) -> set[tuple[int, datetime]]:
    """Record fire times; return (schedule, fire time) of those that were not recorded before.

    With `again`, missed fire times count as not recorded.
    """
    rows = await conn.fetch(
        SQL["claim"],
        [fire.schedule_id for fire in fires],
        [fire.fire_at for fire in fires],
        [fire.tenant_id for fire in fires],
        [fire.scheduling_type for fire in fires],
        empty_if_all_none([fire.task_id for fire in fires]),
        empty_if_all_none([fire.graph_id for fire in fires]),
        empty_if_all_none([_json(fire.reason) for fire in fires]),
        empty_if_all_none([fire.last_at for fire in fires]),
        empty_if_all_none([fire.times if fire.times != 1 else None for fire in fires]),
        again,
    )
    return {(row["schedule_id"], row["fire_at"]) for row in rows}


async def read_ran(conn: Connection, schedule_id: int, times: Sequence[datetime]) -> set[datetime]:
    """Return which of the given fire times of a schedule produced a task or a graph."""
    rows = await conn.fetch(SQL["read_ran"], schedule_id, list(times))
    return {row["fire_at"] for row in rows}


async def refuse(conn: Connection, reasons: Mapping[int, Reason]) -> None:
    """Record why claimed fire times produced no task after all, by the id claimed for the task."""
    await conn.execute(SQL["refuse"], list(reasons), [_json(reason) for reason in reasons.values()])


async def read_accounts(conn: Connection, tenants: Iterable[int]) -> dict[int, Account]:
    """Return tenants with their current plans, except those that are being removed."""
    rows = await conn.fetch(SQL["accounts"], sorted(tenants))
    return {row["tenant_id"]: _account(row) for row in rows}


async def lock_free_buckets(conn: Connection, rates: Mapping[int, Rate]) -> dict[int, StoredBucket]:
    """Lock and return the buckets of tenants with rates, skipping those locked by others."""
    rows = await conn.fetch(SQL["lock_free_buckets"], sorted(rates))
    return {
        row["tenant_id"]: StoredBucket(
            Bucket(rates[row["tenant_id"]], row["tokens"], row["filled_at"]), row["now"]
        )
        for row in rows
    }


async def lock_tasks(conn: Connection, ids: Iterable[int]) -> None:
    """Lock live tasks in id order, the lock order of all transactions that lock several."""
    await conn.execute(SQL["lock_tasks"], list(ids))


async def drop_occurrences(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Delete occurrences recorded longer ago than `older_than`; return how many."""
    answer: str = await conn.execute(SQL["drop_occurrences"], older_than, limit)
    return int(answer.rpartition(" ")[2])


async def add(conn: Connection, new: StoredSchedule) -> None:
    """Store a new schedule."""
    await conn.execute(
        SQL["add"],
        new.template.id,
        new.template.tenant_id,
        new.template.user_id,
        new.name,
        new.template.task,
        new.template.graph,
        new.written,
        new.anchor,
        new.template.misfire,
        new.template.overlap,
        new.next_run_at,
        new.created_at,
    )


async def count(conn: Connection, tenant_id: int, *, up_to: int) -> int:
    """Count a tenant's schedules, and prevent others from adding one until the commit."""
    await conn.execute(SQL["lock_number"], tenant_id)
    found: int = await conn.fetchval(SQL["count"], tenant_id, up_to)
    return found


async def read(
    conn: Connection,
    tenant_id: int,
    *,
    schedule_id: int | None = None,
    user: str | None = None,
    due_before: datetime | None = None,
    before: int = MAX_ID,
    limit: int = 1,
) -> list[StoredSchedule]:
    """Return schedules of a tenant, newest first."""
    rows = await conn.fetch(SQL["read"], tenant_id, before, limit, schedule_id, user, due_before)
    return [_stored(row) for row in rows]


async def ids_by_name(conn: Connection, tenant_id: int, name: str, *, limit: int) -> list[int]:
    """Return the ids of a tenant's schedules of a name, newest first."""
    return [row["id"] for row in await conn.fetch(SQL["ids_by_name"], tenant_id, name, limit)]


async def lock(
    conn: Connection, tenant_id: int, schedule_id: int
) -> tuple[StoredSchedule, datetime] | None:
    """Lock a schedule for a change, and read the clock; None if the tenant has no such schedule."""
    row = await conn.fetchrow(SQL["lock"], tenant_id, schedule_id)
    if row is None:
        return None
    return _stored(row, row["open_tasks"], row["open_graphs"]), row["now"]


async def change(conn: Connection, new: StoredSchedule) -> None:
    """Store the new values of a locked schedule."""
    await conn.execute(
        SQL["change"],
        new.template.id,
        new.name,
        new.template.task,
        new.template.graph,
        new.written,
        new.anchor,
        new.template.misfire,
        new.template.overlap,
        new.next_run_at,
        new.paused_at,
        new.open_tasks,
        new.open_graphs,
        new.updated_at,
    )


async def remove(conn: Connection, tenant_id: int, schedule_id: int) -> bool:
    """Remove a schedule; its tasks and occurrences stay."""
    return await conn.fetchval(SQL["remove"], tenant_id, schedule_id) is not None


async def read_open(conn: Connection, schedule_id: int) -> tuple[list[int], list[int]]:
    """Return the newest tasks and graphs of a schedule that have not ended."""
    rows = await conn.fetch(SQL["newest"], schedule_id)
    tasks = await read_live_tasks(conn, (row["task_id"] for row in rows if row["task_id"]))
    graphs = await read_live_tasks_of_graphs(
        conn, (row["graph_id"] for row in rows if row["graph_id"])
    )
    return sorted(tasks), sorted(graphs)


async def read_occurrences(
    conn: Connection,
    tenant_id: int,
    schedule_id: int,
    *,
    before: datetime,
    limit: int,
    that_ran: bool = False,
) -> list[Occurrence]:
    """Return the occurrences of a schedule, newest first."""
    rows = await conn.fetch(SQL["occurrences"], tenant_id, schedule_id, before, limit, that_ran)
    return [msgspec.convert(dict(row), Occurrence) for row in rows]


@lru_cache(maxsize=20_000)
def recurrence_of(text: str, anchor: datetime) -> Recurrence:
    """Parse a stored recurrence."""
    return parse_recurrence(msgspec.json.decode(text, type=RecurrenceRequest), now=anchor)


def _due(row: Any) -> DueSchedule:
    return DueSchedule(
        template_of(row),
        row["next_run_at"],
        row["open_tasks"] or [],
        row["open_graphs"] or [],
        row["now"],
    )


def template_of(row: Any) -> ScheduleTemplate:
    """Return the template in a row of `schedules`."""
    return ScheduleTemplate(
        id=row["id"],
        tenant_id=row["tenant_id"],
        user_id=row["user_id"],
        task=row["task"],
        graph=row["graph"],
        recurrence=recurrence_of(row["recurrence"], row["anchor"]),
        misfire=Misfire(row["misfire"]),
        overlap=Overlap(row["overlap"]),
    )


def _stored(
    row: Any, open_tasks: Sequence[int] = (), open_graphs: Sequence[int] = ()
) -> StoredSchedule:
    return StoredSchedule(
        template=template_of(row),
        name=row["name"],
        user=row["user"],
        written=msgspec.json.decode(row["recurrence"]),
        anchor=row["anchor"],
        next_run_at=row["next_run_at"],
        paused_at=row["paused_at"],
        open_tasks=list(open_tasks),
        open_graphs=list(open_graphs),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _account(row: Any) -> Account:
    plan = plan_of(row)
    room = None if plan.max_waiting is None else max(0, plan.max_waiting - row["waiting"])
    return Account(row["tenant_id"], plan, row["suspended_at"] is not None, row["fair_users"], room)


def _ids(ids: Sequence[int]) -> str | None:
    return array_literal(ids) if ids else None


def _json(reason: Reason | None) -> str | None:
    return None if reason is None else msgspec.json.encode(reason).decode()
