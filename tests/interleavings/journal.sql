-- Additions of the tests to the schema: a clock that only the tests move, and a journal of every change
-- in the order in which the changes were made.

create table clock (at timestamptz not null);
grant select on clock to public;

create or replace function now() returns timestamptz
    language sql volatile
    as 'select at from duly.clock';

create table journal (
    seq   bigint generated always as identity primary key,
    pid   int not null default pg_backend_pid(),
    at    timestamptz not null default duly.now(),
    what  text not null,
    op    text not null,
    old   jsonb,
    new   jsonb
);
grant insert on journal to public;

create function note() returns trigger
    language plpgsql
    as $$
begin
    insert into duly.journal (what, op, old, new)
    values (tg_argv[0], lower(tg_op), to_jsonb(old), to_jsonb(new));
    return null;
end
$$;

create trigger note after insert or update or delete on live
    for each row execute function note('live');
create trigger note after insert or update or delete on attempts
    for each row execute function note('attempts');
create trigger note after insert or update or delete on ends
    for each row execute function note('ends');
create trigger note after insert or update or delete on stopping_attempts
    for each row execute function note('stopping_attempts');
create trigger note after insert or update or delete on terms
    for each row execute function note('terms');
create trigger note_begun after insert or delete on incarnations
    for each row execute function note('incarnations');
create trigger note_ended after update on incarnations
    for each row when (old.ended_at is distinct from new.ended_at)
    execute function note('incarnations');
create trigger note after update on nodes
    for each row when (
        (old.draining, old.removed_at, old.capacity_override)
        is distinct from (new.draining, new.removed_at, new.capacity_override)
    )
    execute function note('nodes');
create trigger note after insert or update or delete on reservations
    for each row execute function note('reservations');
create trigger note after insert or update or delete on schedules
    for each row execute function note('schedules');
create trigger note after insert or update on occurrences
    for each row execute function note('occurrences');
create trigger note after insert or update or delete on graph_operations
    for each row execute function note('graph_operations');
create trigger note after insert or update on buckets
    for each row execute function note('buckets');

-- A change of limits takes effect when the revision of the quotas is raised: at the commit, by a
-- trigger that fires before these.
create constraint trigger zz_note after update on plans deferrable initially deferred
    for each row execute function note('plans');
create constraint trigger zz_note after update on tenants deferrable initially deferred
    for each row execute function note('tenants');
