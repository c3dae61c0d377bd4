"""Journals every change of tasks, terms and incarnations with triggers in PostgreSQL.

Triggers write it, so that it does not depend on Duly's code, and a transaction that is rolled back
leaves no steps. The order is that of `seq`, which is drawn under the lock of the row: so two steps
of one row, and a lease and its term, are in the order in which they took effect, whatever the clock
says. `boot` is the time by the clock of the ledger and the clients, which does not jump with
PostgreSQL's.
"""

import asyncio
from typing import Any

import asyncpg
import msgspec

SCHEMA = """
    create schema journal;
    create table journal.steps (
        seq bigint generated always as identity primary key,
        xid bigint not null default pg_current_xact_id()::text::bigint,
        at timestamptz not null default clock_timestamp(),
        boot float8 not null
            default split_part(pg_read_file('/proc/uptime'), ' ', 1)::float8,
        computed_ago float8 not null default 0,
        what text not null,
        op text not null,
        task bigint, status text, attempt int, token bigint, term bigint, server int,
        node bigint, incarnation bigint, failures int, losses int, shape int,
        cancel_requested boolean, is_awaited boolean, is_paused boolean, outcome text, reason text,
        schedule bigint, row jsonb
    );

    -- The seconds between the reading of the clock that the values of a row are computed from, and
    -- the journaling of the row: a trigger runs at the end of its statement, which may be slow.
    create function journal.seconds_since(instant timestamptz) returns float8 language sql as $$
        select greatest(0, extract(epoch from duly.now() - instant))::float8
    $$;

    create function journal.note_live() returns trigger language plpgsql security definer as $$
    declare
        row duly.live := coalesce(new, old);
    begin
        insert into journal.steps (what, op, task, status, attempt, token, term, node, incarnation,
                                   failures, losses, shape, cancel_requested, is_awaited,
                                   is_paused)
        values ('live', lower(tg_op), row.id, row.status, row.attempt, row.token, row.term,
                row.node_id, row.incarnation_id, row.failures, row.losses, row.shape_id,
                row.cancel_requested_at is not null,
                -- A database of an earlier version does not have these columns.
                coalesce(to_jsonb(row) ->> 'has_dependants', 'false')::boolean,
                coalesce(to_jsonb(row) ->> 'is_paused', 'false')::boolean);
        return null;
    end $$;
    create trigger journal_insert after insert or delete on duly.live
        for each row execute function journal.note_live();
    -- Measurements of a running attempt are not steps of its task.
    create trigger journal_update after update on duly.live
        for each row when (
            to_jsonb(old) - '{measured_token,running_since,cpu_seconds,peak_memory_mb}'::text[]
            is distinct from
            to_jsonb(new) - '{measured_token,running_since,cpu_seconds,peak_memory_mb}'::text[]
        )
        execute function journal.note_live();

    create function journal.note_end() returns trigger language plpgsql security definer as $$
    declare
        row duly.ends := coalesce(new, old);
    begin
        insert into journal.steps (what, op, task, status, outcome, attempt, node, failures, losses,
                                   reason)
        values ('end', lower(tg_op), row.task_id, row.status, row.outcome, row.attempt,
                row.node_id, row.failures, row.losses, row.reason ->> 'code');
        return null;
    end $$;
    create trigger journal_change after insert or update or delete on duly.ends
        for each row execute function journal.note_end();

    create function journal.note_attempt() returns trigger language plpgsql security definer as $$
    declare
        row duly.attempts := coalesce(new, old);
    begin
        insert into journal.steps (what, op, task, attempt, token, node, incarnation, outcome,
                                   reason)
        values ('attempt', lower(tg_op), row.task_id, row.attempt, row.token, row.node_id,
                row.incarnation_id, row.outcome, row.reason ->> 'code');
        return null;
    end $$;
    create trigger journal_change after insert or update or delete on duly.attempts
        for each row execute function journal.note_attempt();

    create function journal.note_term() returns trigger language plpgsql security definer as $$
    begin
        insert into journal.steps (what, op, term, server)
        values ('term', lower(tg_op), new.term, new.server);
        return null;
    end $$;
    create trigger journal_insert after insert on duly.terms
        for each row execute function journal.note_term();
    create trigger journal_update after update on duly.terms
        for each row when ((old.term, old.server) is distinct from (new.term, new.server))
        execute function journal.note_term();

    create function journal.note_incarnation() returns trigger
        language plpgsql security definer as $$
    begin
        insert into journal.steps (what, op, incarnation, node, status, reason, computed_ago)
        values ('incarnation', lower(tg_op), new.id, new.node_id,
                case when new.ended_at is null then 'alive' else 'ended' end, new.end_reason,
                journal.seconds_since(coalesce(new.ended_at, new.renewed_at)));
        return null;
    end $$;
    create trigger journal_insert after insert on duly.incarnations
        for each row execute function journal.note_incarnation();
    create trigger journal_update after update on duly.incarnations
        for each row when (new.ended_at is not null) execute function journal.note_incarnation();

    create function journal.note_renewal() returns trigger language plpgsql security definer as $$
    begin
        insert into journal.steps (what, op, incarnation, node, computed_ago)
        values ('renewal', lower(tg_op), new.id, new.node_id,
                journal.seconds_since(new.renewed_at));
        return null;
    end $$;
    create trigger journal_renewal after update on duly.incarnations
        for each row when (new.ended_at is null and old.expires_at <> new.expires_at)
        execute function journal.note_renewal();

    create function journal.note_schedule() returns trigger language plpgsql security definer as $$
    declare
        row jsonb := to_jsonb(coalesce(new, old));
        id bigint := coalesce(row ->> 'schedule_id', row ->> 'id');
    begin
        insert into journal.steps (what, op, schedule, row, computed_ago)
        values (tg_argv[0], lower(tg_op), id, row - 'task',
                coalesce(journal.seconds_since((row ->> 'recorded_at')::timestamptz), 0));
        return null;
    end $$;
    do $$ begin
        -- A database of an earlier version may not have these tables.
        if to_regclass('duly.schedules') is null then
            return;
        end if;
        create trigger journal_change after insert or delete on duly.schedules
            for each row execute function journal.note_schedule('schedule');
        -- Advancing next_run_at is not a change of the schedule.
        create trigger journal_update after update on duly.schedules
            for each row when (
                to_jsonb(old) - '{next_run_at,open_tasks,open_graphs}'::text[]
                is distinct from to_jsonb(new) - '{next_run_at,open_tasks,open_graphs}'::text[]
            )
            execute function journal.note_schedule('schedule');
        create trigger journal_change after insert or update or delete on duly.occurrences
            for each row execute function journal.note_schedule('occurrence');
    end $$;

    -- Rows that existed before.
    insert into journal.steps (what, op, term, server)
    select 'term', 'insert', term, server from duly.terms;
    insert into journal.steps (what, op, incarnation, node, status, reason)
    select 'incarnation', 'insert', id, node_id,
           case when ended_at is null then 'alive' else 'ended' end, end_reason
      from duly.incarnations order by id;
"""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one row, with the new values, or the old ones of a deleted row.

    `what` is live, end, attempt, term, incarnation, renewal, schedule or occurrence; `op` is
    insert, update or delete.
    """

    seq: int
    xid: int = 0
    boot: float = 0.0
    computed_ago: float = 0.0
    """Seconds between the reading of the clock that the row was computed from and `boot`.

    Set for incarnations, their renewals, and occurrences.
    """
    what: str
    op: str
    task: int | None = None
    status: str | None = None
    attempt: int | None = None
    token: int | None = None
    term: int | None = None
    server: int | None = None
    node: int | None = None
    incarnation: int | None = None
    failures: int | None = None
    losses: int | None = None
    shape: int | None = None
    cancel_requested: bool | None = None
    is_awaited: bool | None = None
    """Whether other tasks depend on it."""
    is_paused: bool | None = None
    outcome: str | None = None
    reason: str | None = None
    schedule: int | None = None
    row: dict[str, Any] | None = None
    """The whole row of a schedule or an occurrence."""

    @property
    def computed_at(self) -> float:
        """The reading of the clock that the times in the row are computed from."""
        return self.boot - self.computed_ago


COLUMNS = Step.__struct_fields__


def begin(dsn: str) -> None:
    """Start to journal a database, before the first server starts if possible.

    The role must be allowed to read files of the server.
    """
    asyncio.run(_begin(dsn))


async def read(conn: asyncpg.Connection) -> list[Step]:
    """Return all steps so far, in order; none without a journal."""
    if await conn.fetchval("select to_regclass('journal.steps')") is None:
        return []
    rows = await conn.fetch(f"select {', '.join(COLUMNS)} from journal.steps order by seq")
    return [Step(**dict(row)) for row in rows]


async def _begin(dsn: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(SCHEMA)
    finally:
        await conn.close()
