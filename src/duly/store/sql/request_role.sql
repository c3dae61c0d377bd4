-- name: create
-- Create the request role. It cannot log in, and has no privileges but those granted below.
create role duly_request nologin noinherit

-- name: grant_membership
-- Let the current user assume the role, which the creator of a role may grant.
grant duly_request to current_user

-- name: grant
-- Grant what requests read and write, again at every migration. Requests cannot access a table that
-- is not listed, nor a partition except through its parent. Of rows that belong to no tenant, they
-- see what a task refers to; they never see the hash of a key or password.
grant usage on schema duly to duly_request;
grant select, insert, update, delete
   on tasks, live, ends, events, dead_letters, submissions, reservations, tiers, buckets,
      schedules, occurrences, graph_operations, artifacts, artifact_uses
   to duly_request;
-- An attempt that runs when its task is marked ends in the same request.
grant select, insert on attempts, stopping_attempts to duly_request;
grant usage on sequence entries to duly_request;
grant select on usage, usage_watermark, run_times, tenants, tenants_with_plans, plans, queues,
                downstreams, stages
      to duly_request;
-- Locking a row, so that its tenant is not removed meanwhile, requires the privilege to update
-- some column of it.
grant update (created_at) on tenants to duly_request;
-- Whether an upstream is named by ref is set after its edge was inserted.
grant update (by_ref) on edges to duly_request;
grant select, insert
   on shapes, audit_log, former_specs, edges, graphs, ended_upstreams, children
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
grant select (id, name, enforcement, tenant_id) on nodes to duly_request;
-- Whether the attempt that submits a child still runs.
grant select (id, ended_at) on incarnations to duly_request;

-- name: read_status
-- Return the state of the request role: whether it exists, whether the session user may assume it,
-- whether its privileges are granted, and whether there is anything to grant. PostgreSQL 16 and
-- newer distinguish membership from the right to SET ROLE.
--   $1 role
select r.oid is not null as exists,
       coalesce(
        pg_has_role(
            session_user, r.oid,
            case when current_setting('server_version_num')::int >= 160000
                 then 'SET' else 'MEMBER' end
        ), false
       ) as is_ours,
       -- The privilege granted last stands for all of them.
       coalesce(has_any_column_privilege(r.oid, to_regclass('duly.tenants'), 'update'), false)
        as is_granted,
       to_regprocedure('duly.request_tenant()') is not null as has_policies,
       session_user::text as owner
  from (select) as one
  left join pg_roles r on r.rolname = $1
