"""Leases: from a waiting task to a running attempt to what became of it.

Every write about a running task names (task, attempt, token). A row that does not
match is left alone and left out of the answer: whoever wrote it is fenced.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import NamedTuple

import asyncpg
import msgspec

from duly.model.node import Known
from duly.model.queue import Queue
from duly.model.resources import Resources
from duly.model.shape import Concurrency, Shape
from duly.model.task import LostStarts, OnLost, Outcome, Payload, Reason, Status, Tally, Usage
from duly.store import inputs
from duly.store.database import Connection, load_statements, sparse
from duly.store.nodes import Start
from duly.store.records import read_as
from duly.store.servers import SCHEDULING, Term

SQL = load_statements("leases.sql")
PAYLOAD = msgspec.json.Decoder(Payload)


class Vitals(NamedTuple):
    """When PostgreSQL was started, what time it is there, and whether anything may be lost."""

    started_at: datetime
    now: datetime
    has_silent: bool
    """Whether the lease of an incarnation has run out."""
    has_orphans: bool
    """Whether something runs in an incarnation that has ended."""


class Told(NamedTuple):
    """What a lease says of its task besides the lease itself."""

    shape_id: int
    execution_cap: timedelta
    payload: Payload
    idempotency_key: str
    has_inputs: bool


class Running(NamedTuple):
    """An attempt that runs, and how long it may go on by its cap."""

    id: int
    token: int
    incarnation_id: int
    shape_id: int
    tenant_id: int
    remaining: timedelta


class Lease(msgspec.Struct, frozen=True):
    """An attempt that has just been given to an incarnation."""

    id: int
    attempt: int
    token: int
    incarnation_id: int
    told: Told | None
    """What there is to tell the agent, if that was asked for."""

    def start(self, needs: Resources, tenant_id: int) -> Start:
        """Return what the agent needs to start it."""
        assert self.told is not None  # noqa: S101 -- whoever asks has looked
        return Start(
            id=self.id,
            attempt=self.attempt,
            token=self.token,
            execution_cap=self.told.execution_cap,
            payload=self.told.payload,
            needs=needs,
            idempotency_key=self.told.idempotency_key,
            has_inputs=self.told.has_inputs,
            tenant_id=tenant_id,
        )


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
    """How long it may be put off, by itself and by those behind it."""
    start_by: datetime
    latest_start: datetime | None
    """When it has to start for those behind it that have a time of their own."""
    leased_at: datetime
    execution_cap: timedelta
    cancel_requested_at: datetime | None
    node_id: int
    running_since: datetime | None = None
    """Since when it runs, as far as its node has told; it tells only of those that run long."""
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None
    has_left: bool = False
    """Whether the agent has said that it goes, and so never began this attempt."""

    @property
    def tally(self) -> Tally:
        """Return what has gone wrong before this attempt."""
        return Tally(self.failures, self.losses)


class Succeeded(msgspec.Struct, frozen=True):
    """An attempt that ended as it should; times are seconds."""

    id: int
    attempt: int
    token: int
    exit_code: int | None
    ran: float | None
    ended_ago: float
    usage: Usage | None
    log_size: int
    log_tail: bytes
    result: str | None
    reason: Reason | None


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


async def read_shapes(conn: Connection, ids: Sequence[int]) -> dict[int, Shape]:
    """Return what shapes stand for."""
    rows = await conn.fetch(SQL["read_shapes"], list(ids))
    return {
        row["id"]: Shape(
            msgspec.convert(row["needs"], Resources),
            row["requires"],
            msgspec.convert(row["concurrency"], Concurrency | None),
            None if row["queue"] is None else Queue(row["queue"]),
        )
        for row in rows
    }


async def read_known(conn: Connection) -> list[Known]:
    """Return what every known node has, alive or not."""
    rows = await conn.fetch(SQL["read_known"])
    return [Known(msgspec.convert(row["capacity"], Resources), row["labels"]) for row in rows]


async def read_changes(
    conn: Connection, incarnations: Sequence[int], above: int, known: Mapping[int, int]
) -> tuple[list[Running], list[int]]:
    """Return the attempts on incarnations above a token, and which known ones run no more.

    `known` are tasks with the tokens of their attempts.
    """
    rows = await conn.fetch(
        SQL["read_changes"], list(incarnations), above, list(known), list(known.values())
    )
    begun = read_as(Running, [row for row in rows if row["incarnation_id"] is not None])
    return begun, [row["id"] for row in rows if row["incarnation_id"] is None]


async def lease(
    conn: Connection,
    term: Term,
    placements: Sequence[tuple[int, int, int, int]],
    *,
    revision: int,
    given: int | None,
    backstop: timedelta,
    told: Collection[int] = (),
) -> list[Lease]:
    """Give tasks to incarnations; return what took effect, in the order of the placements.

    A placement is (task, incarnation, its revision, the task's shape): it counts only if both
    the incarnation and the task still are as they were when it was decided. All of them count
    only if the limits of tenants are still of the `revision` that was gone by and, for tasks of
    tenants that have limits, if nothing was `given` since they were counted; raises
    QuotasChanged otherwise. Leases to the incarnations in `told` come with what there is to tell.
    """
    if not placements:
        return []
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
        list(told),
        revision,
        given,
    )
    payloads = {
        row["id"]: PAYLOAD.decode(row["payload"]) for row in rows if row["payload"] is not None
    }
    # The leases are committed by now. If this fails, the next look of their nodes finds them.
    having = await inputs.read_having(conn, payloads)
    leased = {
        row["id"]: Lease(
            row["id"],
            row["attempt"],
            row["token"],
            row["incarnation_id"],
            _told(row, payloads, having),
        )
        for row in rows
    }
    return [leased[task] for task, _, _, _ in placements if task in leased]


async def lock_attempts(
    conn: Connection, node_id: int, refs: Sequence[tuple[int, int, int]]
) -> tuple[dict[int, Held], datetime | None]:
    """Lock the running attempts (task, attempt, token) of a node; those left out are stale.

    The time is what it was after the last lock was taken; there is none without a lock.
    """
    rows = await conn.fetch(SQL["lock_attempts"], node_id, *_columns(refs))
    at = rows[-1]["at"] if rows else None
    return {row["id"]: _held(row) for row in rows}, at


async def finish_attempts(
    conn: Connection, node_id: int, succeeded: Sequence[Succeeded]
) -> dict[int, bool]:
    """Finish tasks whose attempts on a node succeeded; return those that are done by this.

    Each task may be there once: what is said of it is found by its id. True are those that
    others wait for. What is left out is stale, or to be cancelled.
    """
    succeeded = sorted(succeeded, key=lambda one: one.id)
    usages = [one.usage or Usage() for one in succeeded]
    rows = await conn.fetch(
        SQL["finish_attempts"],
        node_id,
        [one.id for one in succeeded],
        [one.attempt for one in succeeded],
        [one.token for one in succeeded],
        [one.exit_code for one in succeeded],
        [one.ran for one in succeeded],
        [one.ended_ago for one in succeeded],
        [usage.cpu_seconds for usage in usages],
        [usage.peak_memory_mb for usage in usages],
        [usage.wall_seconds for usage in usages],
        [one.log_size for one in succeeded],
        sparse([one.log_tail or None for one in succeeded]),
        sparse([one.result for one in succeeded]),
        sparse([_optional_json(one.reason) for one in succeeded]),
    )
    return {row["id"]: row["has_dependants"] for row in rows}


async def read_accepted(
    conn: Connection, node_id: int, refs: Sequence[tuple[int, int, int]]
) -> set[tuple[int, int]]:
    """Return which (task, attempt) ended by an earlier report of their own."""
    rows = await conn.fetch(SQL["read_accepted"], node_id, *_columns(refs))
    return {(row["id"], row["attempt"]) for row in rows}


async def lock_orphans(conn: Connection, *, limit: int) -> list[Held]:
    """Lock running attempts whose incarnation is not alive."""
    return [_held(row) for row in await conn.fetch(SQL["lock_orphans"], limit)]


async def read_lost_starts(
    conn: Connection, ids: Sequence[int], *, within: timedelta
) -> dict[int, LostStarts]:
    """Return who was lost with tasks `within` some time, before they were known to have begun.

    Their running attempts, whose rows are locked, count as well; where these do not, nothing does.
    """
    rows = await conn.fetch(SQL["read_lost_starts"], list(ids), within)
    return {
        row["id"]: LostStarts(row["nodes"], row["incarnations"], row["cluster"]) for row in rows
    }


async def end_attempts(conn: Connection, ended: Sequence[Ended]) -> None:
    """Record ended attempts and move their tasks on; the rows are locked."""
    usages = [one.usage for one in ended]
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
        [usage and usage.cpu_seconds for usage in usages],
        [usage and usage.peak_memory_mb for usage in usages],
        [usage and usage.wall_seconds for usage in usages],
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
    conn: Connection, reasons: Mapping[int, Reason], status: Status
) -> list[int]:
    """End tasks that have not started, each for its reason; return those that were still so."""
    said = [_json(reason) for reason in reasons.values()]
    rows = await conn.fetch(SQL["end_unstarted"], list(reasons), status, said)
    return [row["id"] for row in rows]


async def lock_unplaceable(
    conn: Connection, pairs: Collection[tuple[int, int]], *, ready_before: datetime, limit: int
) -> dict[int, int]:
    """Lock waiting tasks of (tenant, shape) pairs that have been ready since before then.

    Returns their shapes.
    """
    tenants, shapes = [tenant for tenant, _ in pairs], [shape for _, shape in pairs]
    rows = await conn.fetch(SQL["lock_unplaceable"], tenants, shapes, ready_before, limit)
    return {row["id"]: row["shape_id"] for row in rows}


async def release_due(conn: Connection, *, limit: int) -> list[tuple[tuple[int, int], datetime]]:
    """Let tasks wait for their turn whose time has come; return (tenant, shape) and start_by."""
    rows = await conn.fetch(SQL["release_due"], limit)
    return [((row["tenant_id"], row["shape_id"]), row["start_by"]) for row in rows]


async def next_due(conn: Connection) -> tuple[timedelta | None, bool]:
    """Return how long it is until the next task becomes due; None when there is none.

    And whether tasks have ended that others wait for.
    """
    row = await conn.fetchrow(SQL["next_due"])
    assert row is not None  # noqa: S101 -- it has one row whatever is stored
    seconds = row["seconds"]
    until = None if seconds is None else timedelta(seconds=max(0.0, seconds))
    return until, row["has_ended"]


async def read_vitals(conn: Connection, *, lately: timedelta, whole: bool) -> Vitals:
    """Return how PostgreSQL and the nodes are, and whether there are orphans.

    Those of incarnations that ended `lately` are always found, others by a look at the whole.
    """
    row = await conn.fetchrow(SQL["read_vitals"], whole, lately)
    assert row is not None  # noqa: S101 -- the clock has one row
    return Vitals(**row)


async def expire_incarnations(conn: Connection, at: datetime) -> list[tuple[int, int]]:
    """End the incarnations whose lease had run out by `at`; return them as (incarnation, node)."""
    rows = await conn.fetch(SQL["expire_incarnations"], at)
    return [(row["id"], row["node_id"]) for row in rows]


def _told(row: asyncpg.Record, payloads: Mapping[int, Payload], having: Set[int]) -> Told | None:
    task = row["id"]
    if task not in payloads:
        return None
    cap, key = row["execution_cap"], row["idempotency_key"]
    return Told(row["shape_id"], cap, payloads[task], key, task in having)


def _held(row: asyncpg.Record) -> Held:
    """Return a locked row; what else its statement returns is not a field."""
    return msgspec.convert(dict(row), Held)


def _columns(refs: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    return [ref[0] for ref in refs], [ref[1] for ref in refs], [ref[2] for ref in refs]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _optional_json(value: Reason | None) -> str | None:
    return None if value is None else _json(value)
