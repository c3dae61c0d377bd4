-- name: read_limits
-- Return what tenants may have at once, and the revision of all limits, as of one moment.
--   $1 tenant ids
select q.revision, t.tenant_id, t.max_running, t.max_resources,
       t.suspended_at is not null or t.removed_at is not null as is_suspended
  from quotas q
  left join lateral (
        select *
          from tenants_with_plans
         where tenant_id = any($1::int[])
       ) as t on true

-- name: give
-- Hold the marks until the commit, before something is given to a tenant by another way than a
-- lease; no lease is then made by what was counted before. The tenant comes first, as for
-- whoever changes it: two orders would be a deadlock.
--   $1 tenant_id
with tenant as materialized (
        select 1
          from tenants
         where id = $1
           for key share
     )
update quotas
   set given = given + 1
  from tenant
