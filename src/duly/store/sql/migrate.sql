-- name: lock
-- Keep everyone else from migrating; a session lock, because each step has a transaction of its own.
--   $1 number of the lock
select pg_advisory_lock($1::bigint)

-- name: unlock
--   $1 number of the lock
select pg_advisory_unlock($1::bigint)

-- name: prepare
-- Make the schema and the list of what has been applied to it. Whoever has been given the schema
-- may not be allowed to make one, and is not even asked to.
do $$
begin
    if to_regnamespace('duly') is null then
        create schema duly;
    end if;
end
$$;
set search_path to duly;
create table if not exists duly.migrations (
    number      int primary key,
    name        text not null,
    checksum    text not null,
    applied_at  timestamptz not null default clock_timestamp()
);
-- Servers that know the steps up to this one, and not the step itself, work on.
alter table duly.migrations add column if not exists serves int;

-- name: exists
-- Say whether anything was ever applied.
select to_regclass('duly.migrations') is not null

-- name: applied
-- Return what has been applied, in order. An older version may have made the list without
-- the last column.
select number, name, checksum, (to_jsonb(migrations) ->> 'serves')::int as serves
  from duly.migrations
 order by number

-- name: be_brief
-- Rather give up than wait for a table for long: whoever comes later waits behind us.
set local lock_timeout = '2s'

-- name: record
-- Note that a step has been applied.
--   $1 number, $2 name, $3 checksum, $4 the oldest step whose servers work on
insert into duly.migrations (number, name, checksum, serves)
values ($1, $2, $3, $4)
