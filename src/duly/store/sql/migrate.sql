-- name: lock
-- Keep everyone else from migrating; a session lock, because each step has a transaction of its own.
select pg_advisory_lock($1::bigint)

-- name: unlock
select pg_advisory_unlock($1::bigint)

-- name: prepare
-- Make the schema and the list of what has been applied to it.
create schema if not exists duly;
set search_path to duly;
create table if not exists duly.migrations (
    number      int primary key,
    name        text not null,
    checksum    text not null,
    applied_at  timestamptz not null default clock_timestamp()
);

-- name: exists
-- Say whether anything was ever applied.
select to_regclass('duly.migrations') is not null

-- name: applied
-- Return what has been applied, in order.
select number, name, checksum
  from duly.migrations
 order by number

-- name: record
-- Note that a step has been applied.
--   $1 number, $2 name, $3 checksum
insert into duly.migrations (number, name, checksum)
values ($1, $2, $3)
