-- name: read_tiers
-- Return the resources of tiers: those for all tenants, and those of one tenant.
--   $1 tenant_id
(select name, resources, created_at, false as is_own
   from tiers
  where tenant_id is null
  order by name)
 union all
(select name, resources, created_at, true
   from tiers
  where tenant_id = $1
  order by name)

-- name: lock_tiers
-- Lock the tiers of a tenant, or of all tenants (null), for a change until the commit.
--   $1 tenant_id
select pg_advisory_xact_lock(hashtext('duly.tiers'), coalesce($1::int, 0))

-- name: set_tier
-- Set the resources of a tier, for the tenant or for all tenants (null).
--   $1 tenant_id, $2 name, $3 resources
insert into tiers (tenant_id, name, resources)
values ($1::int, $2, $3::jsonb)
    on conflict (tenant_id, name) do update set resources = excluded.resources

-- name: remove_tier
--   $1 tenant_id or null for everybody, $2 name
delete from tiers
 where tenant_id is not distinct from $1::int
   and name = $2
returning name

-- name: plans_with_tier
-- Return the plans that list a tier.
--   $1 name
select name
  from plans
 where $1 = any(tiers)
 order by name
