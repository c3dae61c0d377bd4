-- name: make_bucket
-- Make the bucket of a tenant that has none yet: full.
--   $1 tenant_id
insert into buckets (tenant_id, tokens, filled_at)
select t.id, p.burst, duly.now()
  from tenants t
  join plans p on p.name = t.plan
 where t.id = $1
   and p.burst is not null
    on conflict (tenant_id) do nothing

-- name: lock_bucket
-- Lock the bucket of a tenant, and read the clock after that. The rate is the plan's as it is
-- now; no row comes back when it has none.
--   $1 tenant_id
with locked as materialized (
        select b.tokens, b.filled_at, p.tasks_per_hour, p.burst
          from buckets b
          join tenants t on t.id = b.tenant_id
          join plans p on p.name = t.plan
         where b.tenant_id = $1
           and p.burst is not null
           for update of b
     )
select tokens, filled_at, tasks_per_hour, burst, duly.now() as now
  from locked

-- name: read_bucket
-- Return the tokens of a tenant as they are stored, its rate, and the time.
--   $1 tenant_id
select b.tokens, b.filled_at, p.tasks_per_hour, p.burst, duly.now() as now
  from tenants t
  join plans p on p.name = t.plan
  join buckets b on b.tenant_id = t.id
 where t.id = $1
   and p.burst is not null

-- name: settle_bucket
-- Write what is left in a bucket that is locked.
--   $1 tenant_id, $2 tokens, $3 filled_at
update buckets
   set tokens = $2,
       filled_at = $3
 where tenant_id = $1
