"""Deliberate defects for real processes, modelled on bugs of other systems.

The checker has to detect each of them. `python -m tests.torture.mutant NAME serve …` starts a
process with one; some also need a changed function or constraint of the database (`sabotage`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from duly.agent import events, state
from duly.agent.supervision.outcome import REASONS_BY_INTENT, Conclusion
from duly.model.task import Outcome, Status
from duly.policy.schedules import firing
from duly.server.admission import submitter
from duly.server.admission.submitter import Admitted, Submitter
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.delivery.polls import Polls
from duly.server.lifecycle import queue_manager
from duly.server.lifecycle.queue_manager import QueueManager
from duly.store.attempts import leases
from duly.store.fleet import nodes, servers
from duly.store.tasks import schedules, tasks
from duly.store.tasks.tasks import StoredTask
from duly.wire import Assignment, AttemptRef

RACE_SECONDS = 0.5
"""Seconds by which race windows are widened."""


def drop_the_attempt() -> None:
    """Accept a report for its task, whichever attempt is current."""
    for old, new in (
        ("and l.attempt = report.attempt", ""),
        ("and l.token = report.token", "and l.token is not null"),
        ("and l.node_id = $1", "and $1::bigint > 0"),
    ):
        _rewrite(leases.SQL, "lock_attempts", old, new)
    for old, new in (
        ("and attempt = ($3::int[])[width_bucket(id, $2)]", "and $3::int[] is not null"),
        (
            "and token = ($4::bigint[])[width_bucket(id, $2)]",
            "and token is not null and $4::bigint[] is not null",
        ),
        ("and node_id = $1", "and $1::bigint > 0"),
    ):
        _rewrite(leases.SQL, "finish_attempts", old, new)
    queue_manager._matches = lambda held, report: held is not None


def answer_before_commit() -> None:
    """Respond to a submission before it is stored."""
    commit = Submitter._commit

    async def answer_first(self: Submitter, group: Sequence[submitter.CommitRequest]) -> None:
        at = datetime.now(UTC)
        for request in group:
            stored = StoredTask(request.task.id, at, at, at, Status.WAITING)
            request.resolve(Admitted(request.task.id, True, stored))
        await asyncio.sleep(RACE_SECONDS)
        await commit(self, group)

    _patch(Submitter, "_commit", answer_first)


def lease_without_lock() -> None:
    """Lease tasks that were waiting in an earlier snapshot; only in the database (`sabotage`)."""


def rescue_by_snapshot() -> None:
    """Read the orphans without a lock, and expire them later, whoever holds them by then."""
    _rewrite(leases.SQL, "lock_orphans", "for update", "")
    lock = leases.lock_orphans

    async def read_then_expire(conn: Any, *, limit: int) -> list[leases.LockedAttempt]:
        orphans = await lock(conn, limit=limit)
        if not orphans:
            return []
        # In a statement: PostgreSQL would end an idle transaction.
        await conn.execute(f"select pg_sleep({8 * RACE_SECONDS})")
        rows = await conn.fetch(
            "select id, tenant_id, shape_id, attempt, token, failures, losses, max_attempts,"
            " on_lost, delay_tolerance, start_by, latest_start, leased_at, execution_cap,"
            " cancel_requested_at, node_id from duly.live"
            " where id = any($1::bigint[]) and token is not null",
            [orphan.id for orphan in orphans],
        )
        return [leases._locked_attempt(row) for row in rows]

    _patch(leases, "lock_orphans", read_then_expire)


def skip_the_term() -> None:
    """Lead for ever, once elected; the database does not check the term (`sabotage`)."""

    renew = servers.renew_term

    async def pretend_to_renew(conn: Any, term: servers.Term, *, ttl: timedelta) -> bool:
        await renew(conn, term, ttl=ttl)
        return True

    async def hold_nothing(conn: Any, term: servers.Term) -> None:
        pass

    _patch(servers, "renew_term", pretend_to_renew)
    _patch(servers, "hold", hold_nothing)
    _patch(ClusterManager, "term", property(lambda self: self._term))


def local_clock() -> None:
    """Expire leases by the clock of a server that is an hour ahead."""
    ahead = "expires_at <= $1::timestamptz + interval '1 hour'"
    _rewrite(leases.SQL, "expire_incarnations", "expires_at <= $1", ahead)
    sooner = "expires_at <= clock.now + interval '1 hour'"
    _rewrite(leases.SQL, "read_vitals", "expires_at <= clock.now", sooner)


def release_too_early() -> None:
    """Report an attempt as ended as soon as it was asked to terminate."""
    terminate = state.Agent._terminate

    def report_at_once(
        self: state.Agent, ref: AttemptRef, attempt: state.HeldAttempt, intent: Outcome
    ) -> list[events.Effect]:
        effects = terminate(self, ref, attempt, intent)
        if effects:
            attempt.ended = True
            effects.append(events.Report(ref, Conclusion(intent, REASONS_BY_INTENT[intent])))
        return effects

    _patch(state.Agent, "_terminate", report_at_once)


def select_then_insert() -> None:
    """Check for the key, then insert the task; the key is not unique (`sabotage`)."""
    _rewrite(
        tasks.SQL,
        "insert_tasks",
        "order by tenant_id, key\n            on conflict (tenant_id, key) do nothing",
        "and not exists (select 1 from submissions s where"
        " s.tenant_id = given.tenant_id and s.key = given.key)"
        f" and pg_sleep({RACE_SECONDS}) is not null",
    )


def cancel_only_what_waits() -> None:
    """Acknowledge every cancellation, but ignore those of running tasks."""
    request = tasks.request_cancel

    async def cancel_waiting(
        conn: Any, tenant_id: int, ids: Sequence[int]
    ) -> dict[int, int | None]:
        rows = await conn.fetch(
            "select id, incarnation_id from duly.live"
            " where id = any($1::bigint[]) and token is not null",
            list(ids),
        )
        running = {row["id"]: row["incarnation_id"] for row in rows}
        rest = [task for task in ids if task not in running]
        return {**await request(conn, tenant_id, rest), **running}

    _patch(tasks, "request_cancel", cancel_waiting)


def forget_failures() -> None:
    """Reset the count of failures when a node is lost."""
    end_orphan = QueueManager._end_orphan

    def without_failures(
        self: QueueManager, held: leases.LockedAttempt, *rest: Any
    ) -> leases.EndedAttempt:
        return end_orphan(self, msgspec.structs.replace(held, failures=0), *rest)

    _patch(QueueManager, "_end_orphan", without_failures)


def trust_for_ever() -> None:
    """Let attempts continue although the lease of their node was not renewed."""
    _patch(state, "_trusted_until", lambda sent_at, ttl: sent_at + ttl + 3600)


def ignore_the_cap() -> None:
    """Multiply the execution cap of every attempt by 100."""
    assign = Polls._assignment

    def with_long_cap(self: Polls, start: nodes.Start) -> Assignment:
        assignment = assign(self, start)
        return msgspec.structs.replace(assignment, execution_cap=100 * assignment.execution_cap)

    _patch(Polls, "_assignment", with_long_cap)


def fire_without_claim() -> None:
    """Fire without advancing the schedule, and without a unique claim (`sabotage`)."""
    _rewrite(
        schedules.SQL,
        "claim",
        """ order by schedule_id, fire_at
    on conflict (schedule_id, fire_at) do update
   set task_id = excluded.task_id,
       graph_id = excluded.graph_id
 where $10::boolean
   and coalesce(occurrences.task_id, occurrences.graph_id) is null
   and coalesce(excluded.task_id, excluded.graph_id) is not null
""",
        " where $10::boolean is not null\n",
    )
    advance, skipped = schedules.advance, list[object]()

    async def advance_or_skip(conn: Any, fired: Any) -> None:
        if skipped or not fired:
            await advance(conn, fired)
        else:
            skipped.append(fired)

    _patch(schedules, "advance", advance_or_skip)


def forget_the_missed() -> None:
    """Do not record missed fire times."""
    _patch(firing, "_merge_missed", lambda decisions: iter(()))


def fire_while_paused() -> None:
    """Ignore the pause of a schedule."""
    _rewrite(schedules.SQL, "next_due", "where paused_at is null\n   and", "where")
    _rewrite(schedules.SQL, "lock_due", "where paused_at is null\n           and", "where")


MUTANTS: Mapping[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (
        drop_the_attempt,
        answer_before_commit,
        lease_without_lock,
        rescue_by_snapshot,
        skip_the_term,
        local_clock,
        release_too_early,
        select_then_insert,
        cancel_only_what_waits,
        forget_failures,
        trust_for_ever,
        ignore_the_cap,
        fire_without_claim,
        forget_the_missed,
        fire_while_paused,
    )
}
LEASE_FUNCTIONS = """
    select text
      from pg_proc p
     cross join lateral pg_get_functiondef(p.oid) as text
     where p.pronamespace = 'duly'::regnamespace
       and p.proname = 'lease_tasks'
       and strpos(text, $1) > 0
"""
LOCK_LIVE = """perform 1
       from duly.live l
      where l.id = any(p_tasks)
      order by l.id
        for update;"""
REPLACEMENTS: Mapping[str, Mapping[str, str]] = {
    "lease_without_lock": {
        LOCK_LIVE: f"perform pg_sleep({2 * RACE_SECONDS});",
        "and (l.status = 'waiting') is not false": "",
    },
    "skip_the_term": {"and t.term = p_term and t.server = p_server": ""},
}
"""Replacements in the text of `duly.lease_tasks`, by mutant."""


def sabotage(name: str, dsn: str) -> None:
    """Change the database for a mutant."""
    asyncio.run(_sabotage(name, dsn))


async def _sabotage(name: str, dsn: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        if name == "select_then_insert":
            await conn.execute("alter table duly.submissions drop constraint submissions_pkey")
        if name == "fire_without_claim":
            await conn.execute("alter table duly.occurrences drop constraint occurrences_pkey")
        for old, new in REPLACEMENTS.get(name, {}).items():
            # There may be several overloads: servers of the previous version call theirs.
            rows = await conn.fetch(LEASE_FUNCTIONS, old)
            assert rows, f"nothing to change for {name}"
            for row in rows:
                await conn.execute(row["text"].replace(old, new))
    finally:
        await conn.close()


def _rewrite(statements: Mapping[str, str], name: str, old: str, new: str) -> None:
    assert old in statements[name], f"{name} has changed"
    assert isinstance(statements, dict)
    statements[name] = statements[name].replace(old, new)


def _patch(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, value)
