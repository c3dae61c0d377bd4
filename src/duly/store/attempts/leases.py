"""Leases: from a waiting task to a running attempt to its outcome.

Every write about a running task names (task, attempt, token), where the token is a fencing token.
A row that does not match is not changed and not returned: the writer's lease is stale.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import NamedTuple

import asyncpg
import msgspec

from duly.model.node import NodeProfile
from duly.model.resources import Resources
from duly.model.shape import Concurrency, FunctionRef, Shape
from duly.model.task import (
    LostStarts,
    OnLost,
    Outcome,
    Payload,
    Reason,
    RetryTerms,
    Status,
    Tally,
    Usage,
)
from duly.store.database import Connection, empty_if_all_none, load_statements
from duly.store.fleet.nodes import Start
from duly.store.fleet.servers import SCHEDULING, Term
from duly.store.records import read_as
from duly.store.tasks import inputs

SQL = load_statements("leases.sql")
PAYLOAD_DECODER = msgspec.json.Decoder(Payload)


class Vitals(NamedTuple):
    """When PostgreSQL started, its clock, and whether leases have expired or attempts are lost."""

    started_at: datetime
    now: datetime
    has_silent: bool
    """Whether the lease of an incarnation has expired."""
    has_orphans: bool
    """Whether an attempt is running on an incarnation that has ended."""


class StartDetails(NamedTuple):
    """The task's data that an agent needs to start a leased attempt."""

    shape_id: int
    execution_cap: timedelta
    payload: Payload
    idempotency_key: str
    has_inputs: bool


class RunningAttempt(NamedTuple):
    """A running attempt, and the time that is left of its execution cap."""

    id: int
    token: int
    incarnation_id: int
    shape_id: int
    tenant_id: int
    remaining: timedelta


class Lease(msgspec.Struct, frozen=True):
    """An attempt that has just been leased to an incarnation."""

    id: int
    attempt: int
    token: int
    incarnation_id: int
    details: StartDetails | None
    """Set if the details were requested."""

    def start(self, needs: Resources, tenant_id: int) -> Start:
        """Return what the agent needs to start it."""
        assert self.details is not None  # noqa: S101 -- the caller has checked
        return Start(
            id=self.id,
            attempt=self.attempt,
            token=self.token,
            execution_cap=self.details.execution_cap,
            payload=self.details.payload,
            needs=needs,
            idempotency_key=self.details.idempotency_key,
            has_inputs=self.details.has_inputs,
            tenant_id=tenant_id,
        )


class LockedAttempt(msgspec.Struct, frozen=True):
    """A running attempt whose row is locked, with the input of the retry decision."""

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
    """The smaller of its own tolerance and that of its downstream tasks."""
    start_by: datetime
    latest_start: datetime | None
    """The latest start that lets downstream tasks with a fixed time start on time."""
    leased_at: datetime
    execution_cap: timedelta
    cancel_requested_at: datetime | None
    node_id: int
    retry: RetryTerms | None = None
    uses: list[str] = []
    """The keys of the downstreams that it calls; only read with its report."""
    running_since: datetime | None = None
    """Start of the run, if its node has reported it; only long runs are reported."""
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None
    has_left: bool = False
    """Whether the agent shut down cleanly, and so never began this attempt."""
    was_removed: bool = False
    """Whether an administrator has removed the node."""

    @property
    def tally(self) -> Tally:
        """Return the failures and losses before this attempt."""
        return Tally(self.failures, self.losses)


class SucceededAttempt(msgspec.Struct, frozen=True):
    """An attempt that succeeded; durations are in seconds."""

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


class EndedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An ended attempt, and where its task goes next.

    `reason` says why the attempt ended, `task_reason` why its task ended or has to wait.
    """

    held: LockedAttempt
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
    shape_id: int
    """That of its task from now on: a retry may be in a higher queue."""


async def read_shapes(conn: Connection, ids: Sequence[int]) -> dict[int, Shape]:
    """Return interned shapes by id."""
    rows = await conn.fetch(SQL["read_shapes"], list(ids))
    return {
        row["id"]: Shape(
            msgspec.convert(row["needs"], Resources),
            row["requires"],
            msgspec.convert(row["concurrency"], Concurrency | None),
            row["queue"],
            row["user_id"],
            tuple(row["uses"]),
            msgspec.convert(row["function"], FunctionRef | None),
        )
        for row in rows
    }


async def read_known_nodes(conn: Connection) -> list[NodeProfile]:
    """Return capacity and labels of every node that is not removed, alive or not."""
    rows = await conn.fetch(SQL["read_known_nodes"])
    return [NodeProfile(msgspec.convert(row["capacity"], Resources), row["labels"]) for row in rows]


async def read_running_changes(
    conn: Connection, incarnations: Sequence[int], above: int, known: Mapping[int, int]
) -> tuple[list[RunningAttempt], list[int]]:
    """Return attempts that began above a token, and the known tasks that no longer run.

    `known` maps tasks to the tokens of their attempts.
    """
    rows = await conn.fetch(
        SQL["read_running_changes"], list(incarnations), above, list(known), list(known.values())
    )
    begun = read_as(RunningAttempt, [row for row in rows if row["incarnation_id"] is not None])
    return begun, [row["id"] for row in rows if row["incarnation_id"] is None]


async def lease(
    conn: Connection,
    term: Term,
    placements: Sequence[tuple[int, int, int, int]],
    *,
    revision: int,
    given: int | None,
    backstop: timedelta,
    with_details: Collection[int] = (),
) -> list[Lease]:
    """Lease tasks to incarnations; return the leases made, in the order of the placements.

    A placement is (task, incarnation, its revision, the task's shape). It takes effect only if
    the incarnation and the task are unchanged since it was decided. All placements depend on the
    quota fence: QuotasChanged is raised unless the limits are still at `revision` and, for tasks
    of tenants with limits, `given` is still what it was when usage was counted. Leases to the
    incarnations in `with_details` come with the details for the agent.
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
        list(with_details),
        revision,
        given,
    )
    payloads = {
        row["id"]: PAYLOAD_DECODER.decode(row["payload"])
        for row in rows
        if row["payload"] is not None
    }
    # The leases are committed by now. If this fails, the next poll of their nodes finds them.
    with_inputs = await inputs.read_tasks_with_inputs(conn, payloads)
    leased = {
        row["id"]: Lease(
            row["id"],
            row["attempt"],
            row["token"],
            row["incarnation_id"],
            _start_details(row, payloads, with_inputs),
        )
        for row in rows
    }
    return [leased[task] for task, _, _, _ in placements if task in leased]


async def lock_attempts(
    conn: Connection, node_id: int, refs: Sequence[tuple[int, int, int]]
) -> tuple[dict[int, LockedAttempt], datetime | None]:
    """Lock the running attempts (task, attempt, token) of a node; missing ones are stale.

    The time is read after the last lock was taken; None if nothing was locked.
    """
    rows = await conn.fetch(SQL["lock_attempts"], node_id, *_columns(refs))
    at = rows[-1]["at"] if rows else None
    return {row["id"]: _locked_attempt(row) for row in rows}, at


async def finish_attempts(
    conn: Connection, node_id: int, succeeded: Sequence[SucceededAttempt]
) -> dict[int, bool]:
    """Finish tasks whose attempts on a node succeeded; return the tasks that are now done.

    A task may appear only once. The value is True if downstream tasks wait for it. A missing task
    is stale, or has a pending cancellation.
    """
    succeeded = sorted(succeeded, key=lambda attempt: attempt.id)
    usages = [attempt.usage or Usage() for attempt in succeeded]
    rows = await conn.fetch(
        SQL["finish_attempts"],
        node_id,
        [attempt.id for attempt in succeeded],
        [attempt.attempt for attempt in succeeded],
        [attempt.token for attempt in succeeded],
        [attempt.exit_code for attempt in succeeded],
        [attempt.ran for attempt in succeeded],
        [attempt.ended_ago for attempt in succeeded],
        [usage.cpu_seconds for usage in usages],
        [usage.peak_memory_mb for usage in usages],
        [usage.wall_seconds for usage in usages],
        [attempt.log_size for attempt in succeeded],
        empty_if_all_none([attempt.log_tail or None for attempt in succeeded]),
        empty_if_all_none([attempt.result for attempt in succeeded]),
        empty_if_all_none([_optional_json(attempt.reason) for attempt in succeeded]),
    )
    return {row["id"]: row["has_dependants"] for row in rows}


async def read_reported(
    conn: Connection, node_id: int, refs: Sequence[tuple[int, int, int]]
) -> set[tuple[int, int]]:
    """Return the (task, attempt) pairs that an earlier report of the node has ended."""
    rows = await conn.fetch(SQL["read_reported"], node_id, *_columns(refs))
    return {(row["id"], row["attempt"]) for row in rows}


async def lock_orphans(conn: Connection, *, limit: int) -> list[LockedAttempt]:
    """Lock running attempts whose incarnation is not alive."""
    return [_locked_attempt(row) for row in await conn.fetch(SQL["lock_orphans"], limit)]


async def read_lost_starts(
    conn: Connection, ids: Sequence[int], *, within: timedelta
) -> dict[int, LostStarts]:
    """Return the nodes and incarnations lost with attempts that had not begun, `within` a time.

    The running attempts, whose rows are locked, are included; a task whose running attempt had
    begun is not returned.
    """
    rows = await conn.fetch(SQL["read_lost_starts"], list(ids), within)
    return {
        row["id"]: LostStarts(row["nodes"], row["incarnations"], row["cluster"]) for row in rows
    }


async def end_attempts(conn: Connection, ended: Sequence[EndedAttempt]) -> None:
    """Record ended attempts, and requeue or end their tasks; the rows are locked."""
    usages = [attempt.usage for attempt in ended]
    await conn.execute(
        SQL["end_attempts"],
        [attempt.held.id for attempt in ended],
        [attempt.held.attempt for attempt in ended],
        [attempt.held.token for attempt in ended],
        [attempt.outcome for attempt in ended],
        [attempt.exit_code for attempt in ended],
        [_optional_json(attempt.reason) for attempt in ended],
        [attempt.started_at for attempt in ended],
        [attempt.finished_at for attempt in ended],
        [usage and usage.cpu_seconds for usage in usages],
        [usage and usage.peak_memory_mb for usage in usages],
        [usage and usage.wall_seconds for usage in usages],
        [attempt.log_size for attempt in ended],
        [attempt.log_tail or None for attempt in ended],
        [attempt.status for attempt in ended],
        [attempt.ready_at for attempt in ended],
        [attempt.start_by for attempt in ended],
        [attempt.tally.failures for attempt in ended],
        [attempt.tally.losses for attempt in ended],
        [attempt.result for attempt in ended],
        [_optional_json(attempt.task_reason) for attempt in ended],
        [attempt.shape_id for attempt in ended],
    )


async def end_unstarted(
    conn: Connection, reasons: Mapping[int, Reason], status: Status
) -> list[int]:
    """End tasks that have not started, each with its reason; return the tasks that were ended."""
    encoded = [_json(reason) for reason in reasons.values()]
    rows = await conn.fetch(SQL["end_unstarted"], list(reasons), status, encoded)
    return [row["id"] for row in rows]


async def lock_unplaceable(
    conn: Connection, pairs: Collection[tuple[int, int]], *, ready_before: datetime, limit: int
) -> dict[int, int]:
    """Lock waiting tasks of (tenant, shape) pairs that became ready before a time.

    Returns the shape of each task.
    """
    tenants, shapes = [tenant for tenant, _ in pairs], [shape for _, shape in pairs]
    rows = await conn.fetch(SQL["lock_unplaceable"], tenants, shapes, ready_before, limit)
    return {row["id"]: row["shape_id"] for row in rows}


async def release_due(conn: Connection, *, limit: int) -> list[tuple[tuple[int, int], datetime]]:
    """Move due tasks from scheduled to waiting; return (tenant, shape) and start_by of each."""
    rows = await conn.fetch(SQL["release_due"], limit)
    return [((row["tenant_id"], row["shape_id"]), row["start_by"]) for row in rows]


async def next_due(conn: Connection) -> tuple[timedelta | None, bool]:
    """Return the time until the next task becomes due, and whether ended upstreams are pending.

    The time is None if no task is scheduled.
    """
    row = await conn.fetchrow(SQL["next_due"])
    assert row is not None  # noqa: S101 -- the statement always returns one row
    seconds = row["seconds"]
    until = None if seconds is None else timedelta(seconds=max(0.0, seconds))
    return until, row["has_ended"]


async def read_vitals(conn: Connection, *, lately: timedelta, whole: bool) -> Vitals:
    """Return the clock of PostgreSQL, and whether leases have expired or orphans exist.

    Orphans of incarnations that ended `lately` are always found, others only with `whole`, which
    scans all running attempts.
    """
    row = await conn.fetchrow(SQL["read_vitals"], whole, lately)
    assert row is not None  # noqa: S101 -- the statement always returns one row
    return Vitals(**row)


async def expire_incarnations(conn: Connection, at: datetime) -> list[tuple[int, int]]:
    """End the incarnations whose lease had expired by `at`; return (incarnation, node) pairs."""
    rows = await conn.fetch(SQL["expire_incarnations"], at)
    return [(row["id"], row["node_id"]) for row in rows]


def _start_details(
    row: asyncpg.Record, payloads: Mapping[int, Payload], with_inputs: Set[int]
) -> StartDetails | None:
    task = row["id"]
    if task not in payloads:
        return None
    cap, key = row["execution_cap"], row["idempotency_key"]
    return StartDetails(row["shape_id"], cap, payloads[task], key, task in with_inputs)


def _locked_attempt(row: asyncpg.Record) -> LockedAttempt:
    """Convert a locked row; columns that are not fields are ignored."""
    return msgspec.convert(dict(row), LockedAttempt)


def _columns(refs: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    return [ref[0] for ref in refs], [ref[1] for ref in refs], [ref[2] for ref in refs]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _optional_json(value: Reason | None) -> str | None:
    return None if value is None else _json(value)
