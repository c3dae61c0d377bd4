-- name: lock
-- Take the migration lock: a session lock, because each step has a transaction of its own.
--   $1 number of the lock
select pg_advisory_lock($1::bigint)

-- name: unlock
--   $1 number of the lock
select pg_advisory_unlock($1::bigint)

-- name: prepare
-- Create the schema and the table of applied migrations. A role that was given the schema may lack
-- the privilege to create one, so an existing schema is not created again.
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
-- Servers that only know the steps up to this one keep working.
alter table duly.migrations add column if not exists serves int;

-- name: exists
-- Return whether any migration was ever applied.
select to_regclass('duly.migrations') is not null

-- name: has_schema
-- Return whether the schema exists, even if it is empty.
select to_regnamespace('duly') is not null

-- name: applied
-- Return the applied migrations in order. The table of an older version may lack the last column.
select number, name, checksum, (to_jsonb(migrations) ->> 'serves')::int as serves
  from duly.migrations
 order by number

-- name: set_lock_timeout
-- Give up rather than wait long for a table lock: later transactions would queue behind it.
set local lock_timeout = '2s'

-- name: record
-- Record a migration as applied.
--   $1 number, $2 name, $3 checksum, $4 the oldest step whose servers work on
insert into duly.migrations (number, name, checksum, serves)
values ($1, $2, $3, $4)
