-- name: make_bucket
-- Create the bucket of a tenant that has none yet, full.
--   $1 tenant_id
insert into buckets (tenant_id, tokens, filled_at)
select t.id, p.burst, duly.now()
  from tenants t
  join plans p on p.name = t.plan
 where t.id = $1
   and p.burst is not null
    on conflict (tenant_id) do nothing

-- name: lock_bucket
-- Lock the bucket of a tenant, and read the clock after the lock. The rate is the current one of
-- the plan; returns no row if the plan has none.
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
-- Return the stored tokens of a tenant, its rate, and the time.
--   $1 tenant_id
select b.tokens, b.filled_at, p.tasks_per_hour, p.burst, duly.now() as now
  from tenants t
  join plans p on p.name = t.plan
  join buckets b on b.tenant_id = t.id
 where t.id = $1
   and p.burst is not null

-- name: write_bucket
-- Store the tokens that are left in a locked bucket.
--   $1 tenant_id, $2 tokens, $3 filled_at
update buckets
   set tokens = $2,
       filled_at = $3
 where tenant_id = $1
