-- name: make
-- Make the role of requests. It can do nothing that it is not granted below, and not log in.
create role duly_request nologin noinherit

-- name: join
-- Let us take the role on; as its maker one may say so.
grant duly_request to current_user

-- name: grant
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

-- name: look
-- Say what there is of the role of requests: whether it exists, whether we may take it on,
-- whether it has been granted what it needs, and whether there is anything to grant. PostgreSQL 16
-- and newer tell membership from being allowed to take a role on.
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
