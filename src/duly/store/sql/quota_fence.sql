-- name: read_limits
-- Return the limits and weights of tenants, all queues in a row without a tenant, and the revision
-- of all of them, in one snapshot.
--   $1 tenant ids
select q.revision, t.tenant_id, t.max_running, t.max_resources, t.weight,
       t.suspended_at is not null or t.removed_at is not null as is_suspended,
       null::text as queues
  from quotas q
 cross join lateral (
        select *
          from tenants_with_plans
         where tenant_id = any($1::int[])
       ) as t
 union all
select q.revision, null, null, null, null, null,
       (select json_agg(queues)::text from queues)
  from quotas q

-- name: advance
-- Advance the fence, and hold it until the commit, before a tenant is granted anything other than
-- a lease: leases decided on earlier counts then fail. The tenant is locked first, as in changes of
-- tenants: a second lock order would deadlock.
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
