-- name: lock
-- Keep everyone else from migrating; a session lock, because each step has a transaction of its own.
select pg_advisory_lock($1::bigint)

-- name: unlock
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

-- name: make_request_role
-- Make the role of requests. It can do nothing that it is not granted below, and not log in.
create role duly_request nologin noinherit

-- name: join_request_role
-- Let us take the role on; as its maker one may say so.
grant duly_request to current_user

-- name: grant_to_requests
-- Grant what requests read and write, again at every migration. A table that is not named
-- here does not exist for them, and the days of a table only as parts of it. Of what is not a
-- tenant's they see what a task refers to; nowhere do they see a key's or a password's hash.
grant usage on schema duly to duly_request;
grant select, insert, update, delete
   on tasks, live, ends, events, dead_letters, submissions, reservations, tiers, buckets,
      schedules, occurrences, graph_wishes, artifacts, artifact_uses
   to duly_request;
grant select on attempts, usage, books, tenants, tenants_with_plans, plans to duly_request;
-- To lock a row, so that its tenant is not removed meanwhile, needs the right to change some
-- column of it.
grant update (created_at) on tenants to duly_request;
-- What an upstream is called is said after its edge was made.
grant update (by_ref) on edges to duly_request;
grant select, insert
   on shapes, audit_log, former_specs, edges, graphs, ended_upstreams
   to duly_request;
grant select (
        id, public_id, tenant_id, name, scopes, has_password, created_at, removed_at
       ), insert, update
   on users to duly_request;
grant select (
        id, tenant_id, user_id, prefix, scopes, name, service, created_by, created_at,
        expires_at, revoked_at, is_login
       ), insert, update
   on keys to duly_request;
grant select (id, name, enforcement) on nodes to duly_request;

-- name: look_at_request_role
-- Say what there is of the role of requests: whether it exists, whether we may take it on,
-- whether it has been granted what it needs, and whether there is anything to grant. PostgreSQL 16 and newer tell membership from
-- being allowed to take a role on.
--   $1 role
select r.oid is not null as exists,
       coalesce(
        pg_has_role(
            session_user, r.oid,
            case when current_setting('server_version_num')::int >= 160000
                 then 'SET' else 'MEMBER' end
        ), false
       ) as is_ours,
       -- What was granted last stands for all of it.
       coalesce(has_any_column_privilege(r.oid, to_regclass('duly.tenants'), 'update'), false)
        as is_granted,
       to_regprocedure('duly.request_tenant()') is not null as has_policies,
       session_user::text as owner
  from (select) as one
  left join pg_roles r on r.rolname = $1
