"""Leases: from a waiting task to a running attempt to what became of it.

Every write about a running task names (task, attempt, token). A row that does not
match is left alone and left out of the answer: whoever wrote it is fenced.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from duly.model.node import Known, Offer
from duly.model.resources import NOTHING, Resources
from duly.model.shape import Shape
from duly.model.task import OnLost, Outcome, Reason, Status, Tally, Usage
from duly.store.database import Connection, load_statements
from duly.store.servers import SCHEDULING, Term

SQL = load_statements("leases.sql")


class Head(msgspec.Struct, frozen=True):
    """A waiting task at the head of its line."""

    id: int
    tenant_id: int
    shape_id: int
    start_by: datetime
    priority: int
    execution_cap: timedelta
    avoid_node_id: int | None
    slack: timedelta
    """How long it is until `start_by`."""
    delay_tolerance: timedelta
    losses: int


class Vitals(NamedTuple):
    """When PostgreSQL was started, what time it is there, and whether anything may be lost."""

    started_at: datetime
    now: datetime
    has_silent: bool
    """Whether the lease of an incarnation has run out."""
    has_orphans: bool
    """Whether something runs in an incarnation that has ended."""


class InUse(NamedTuple):
    """How many attempts of a shape an incarnation has, and when the first must have ended."""

    incarnation_id: int
    shape_id: int
    times: int
    next_end: timedelta


class Lease(msgspec.Struct, frozen=True):
    """An attempt that has just been given to an incarnation."""

    id: int
    attempt: int
    token: int
    incarnation_id: int


class Held(msgspec.Struct, frozen=True):
    """A running attempt whose row is locked: what is needed to decide what comes next."""

    id: int
    tenant_id: int
    shape_id: int
    attempt: int
    token: int
    failures: int
    losses: int
    max_attempts: int
    on_lost: OnLost
    delay_tolerance: timedelta
    start_by: datetime
    leased_at: datetime
    execution_cap: timedelta
    cancel_requested_at: datetime | None
    node_id: int
    has_left: bool = False
    """Whether the agent has said that it goes, and so never began this attempt."""

    @property
    def tally(self) -> Tally:
        """Return what has gone wrong before this attempt."""
        return Tally(self.failures, self.losses)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """An ended attempt, and where its task goes next.

    `reason` says why the attempt ended, `task_reason` why its task ended or has to wait.
    """

    held: Held
    outcome: Outcome
    exit_code: int | None
    reason: Reason | None
    started_at: datetime | None
    finished_at: datetime
    usage: Usage | None
    log_size: int
    log_tail: bytes
    status: Status
    ready_at: datetime
    start_by: datetime
    tally: Tally
    result: str | None
    task_reason: Reason | None


async def pairs_with_work(conn: Connection) -> dict[tuple[int, int], datetime]:
    """Return the (tenant, shape) pairs with waiting tasks, and by when the first must start."""
    return {(row[0], row[1]): row[2] for row in await conn.fetch(SQL["pairs_with_work"])}


async def read_heads(
    conn: Connection, pairs: Sequence[tuple[int, int]], *, each: int
) -> list[Head]:
    """Return the first `each` waiting tasks of every pair, by rank within the pair."""
    rows = await conn.fetch(
        SQL["read_heads"], [tenant for tenant, _ in pairs], [shape for _, shape in pairs], each
    )
    return [Head(*row) for row in rows]


async def read_shapes(conn: Connection, ids: Sequence[int]) -> dict[int, Shape]:
    """Return what shapes stand for."""
    rows = await conn.fetch(SQL["read_shapes"], list(ids))
    return {
        row["id"]: Shape(msgspec.convert(row["needs"], Resources), row["requires"]) for row in rows
    }


async def read_offers(conn: Connection) -> list[Offer]:
    """Return every incarnation that is alive; `free` is its whole capacity here."""
    rows = await conn.fetch(SQL["read_offers"])
    return [
        Offer(
            node_id=row["node_id"],
            incarnation_id=row["id"],
            name=row["name"],
            capacity=capacity,
            free=capacity,
            labels=row["labels"],
            draining=row["draining"],
            revision=row["revision"],
        )
        for row in rows
        for capacity in [msgspec.convert(row["capacity"], Resources)]
    ]


async def read_known(conn: Connection) -> list[Known]:
    """Return what every known node has, alive or not."""
    rows = await conn.fetch(SQL["read_known"])
    return [Known(msgspec.convert(row["capacity"], Resources), row["labels"]) for row in rows]


async def read_in_use(conn: Connection) -> list[InUse]:
    """Return what runs where."""
    return [InUse(*row) for row in await conn.fetch(SQL["read_in_use"])]


async def lease(
    conn: Connection,
    term: Term,
    placements: Sequence[tuple[int, int, int, int]],
    *,
    backstop: timedelta,
) -> list[Lease]:
    """Give tasks to incarnations; return what took effect.

    A placement is (task, incarnation, its revision, the task's shape): it counts only if both
    the incarnation and the task still are as they were when it was decided.
    """
    rows = await conn.fetch(
        SQL["lease"],
        SCHEDULING,
        term.number,
        term.server,
        [task for task, _, _, _ in placements],
        [incarnation for _, incarnation, _, _ in placements],
        [revision for _, _, revision, _ in placements],
        [shape for _, _, _, shape in placements],
        backstop,
    )
    return [Lease(*row) for row in rows]


async def lock_attempts(
    conn: Connection, node_id: int, refs: Sequence[tuple[int, int, int]]
) -> dict[int, Held]:
    """Lock the running attempts (task, attempt, token) of a node; those left out are stale."""
    rows = await conn.fetch(SQL["lock_attempts"], node_id, *_columns(refs))
    return {row["id"]: _held(row) for row in rows}


async def read_accepted(
    conn: Connection, node_id: int, refs: Sequence[tuple[int, int, int]]
) -> set[tuple[int, int]]:
    """Return which (task, attempt) ended by an earlier report of their own."""
    rows = await conn.fetch(SQL["read_accepted"], node_id, *_columns(refs))
    return {(row[0], row[1]) for row in rows}


async def lock_orphans(conn: Connection, *, limit: int) -> list[Held]:
    """Lock running attempts whose incarnation is not alive."""
    return [_held(row) for row in await conn.fetch(SQL["lock_orphans"], limit)]


async def end_attempts(conn: Connection, ended: Sequence[Ended]) -> None:
    """Record ended attempts and move their tasks on; the rows are locked."""
    usages = [one.usage or Usage() for one in ended]
    await conn.execute(
        SQL["end_attempts"],
        [one.held.id for one in ended],
        [one.held.attempt for one in ended],
        [one.held.token for one in ended],
        [one.outcome for one in ended],
        [one.exit_code for one in ended],
        [_optional_json(one.reason) for one in ended],
        [one.started_at for one in ended],
        [one.finished_at for one in ended],
        [usage.cpu_seconds for usage in usages],
        [usage.peak_memory_mb for usage in usages],
        [usage.wall_seconds for usage in usages],
        [one.log_size for one in ended],
        [one.log_tail or None for one in ended],
        [one.status for one in ended],
        [one.ready_at for one in ended],
        [one.start_by for one in ended],
        [one.tally.failures for one in ended],
        [one.tally.losses for one in ended],
        [one.result for one in ended],
        [_optional_json(one.task_reason) for one in ended],
    )


async def end_unstarted(
    conn: Connection, ids: Sequence[int], status: Status, reason: Reason
) -> list[int]:
    """End tasks that have not started; return those that were still so."""
    rows = await conn.fetch(SQL["end_unstarted"], list(ids), status, _json(reason))
    return [row["id"] for row in rows]


async def lock_unplaceable(
    conn: Connection, shape_id: int, *, ready_before: datetime, limit: int
) -> list[int]:
    """Lock waiting tasks of a shape that have been ready since before then."""
    rows = await conn.fetch(SQL["lock_unplaceable"], shape_id, ready_before, limit)
    return [row["id"] for row in rows]


async def release_due(conn: Connection, *, limit: int) -> list[tuple[int, int]]:
    """Let tasks wait for their turn whose time has come; return their (tenant, shape) pairs."""
    return [(row[0], row[1]) for row in await conn.fetch(SQL["release_due"], limit)]


async def next_due(conn: Connection) -> timedelta | None:
    """Return how long it is until the next task becomes due; None when there is none."""
    seconds = await conn.fetchval(SQL["next_due"])
    return None if seconds is None else timedelta(seconds=max(0.0, seconds))


async def read_vitals(conn: Connection) -> Vitals:
    """Return how PostgreSQL and the nodes are."""
    row = await conn.fetchrow(SQL["read_vitals"])
    assert row is not None  # noqa: S101 -- the clock has one row
    return Vitals(**row)


async def expire_incarnations(conn: Connection, at: datetime) -> list[tuple[int, int]]:
    """End the incarnations whose lease had run out by `at`; return them as (incarnation, node)."""
    return [(row[0], row[1]) for row in await conn.fetch(SQL["expire_incarnations"], at)]


def free_on(
    offers: Sequence[Offer],
    in_use: Sequence[InUse],
    shapes: Mapping[int, Shape],
    reserved: Mapping[int, Resources],
) -> list[Offer]:
    """Return the offers with what is left free on each of them.

    Where something runs of which nobody can tell what it needs, nothing is free for sure.
    """
    running: defaultdict[int, list[InUse]] = defaultdict(list)
    for one in in_use:
        running[one.incarnation_id].append(one)
    return [
        _less(offer, running[offer.incarnation_id], shapes, reserved.get(offer.node_id, NOTHING))
        for offer in offers
    ]


def _less(
    offer: Offer, running: Sequence[InUse], shapes: Mapping[int, Shape], reserved: Resources
) -> Offer:
    if any(one.shape_id not in shapes for one in running):
        return msgspec.structs.replace(offer, free=NOTHING)
    used = NOTHING
    for one in running:
        used = used.plus(shapes[one.shape_id].needs, one.times)
    return msgspec.structs.replace(
        offer,
        free=offer.capacity.plus(used, -1).plus(reserved, -1),
        used=used,
        next_end=min((one.next_end for one in running), default=timedelta(0)),
    )


def _held(row: "msgspec.Struct | object") -> Held:
    return msgspec.convert(dict(row), Held)  # type: ignore[call-overload]


def _columns(refs: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    return [ref[0] for ref in refs], [ref[1] for ref in refs], [ref[2] for ref in refs]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _optional_json(value: Reason | None) -> str | None:
    return None if value is None else _json(value)
