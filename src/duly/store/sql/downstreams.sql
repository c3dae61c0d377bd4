-- name: read_for_leader
-- Return the limits of some keys, of every tenant, that throttling has changed since a revision, and
-- the revisions. The first row may have no limit.
--   $1 keys, $2 changed after this revision; -1 for all
select r.defined, r.adapted, d.id, d.tenant_id, d.key, d.rate, d.concurrency, d.adaptive, d.factor,
       d.throttled_at, d.retry_at
  from downstream_revision r
  left join downstreams d
    on d.key = any($1::text[])
   and d.adapted > $2

-- name: read_by_key
-- Return the limits that apply to tasks of some tenants that use some keys.
--   $1 tenant ids, $2 keys
select id, tenant_id, key, rate, concurrency, adaptive, factor, throttled_at, retry_at
  from downstreams
 where key = any($2::text[])
   and (tenant_id is null or tenant_id = any($1::int[]))

-- name: list_downstreams
-- Return the limits of a tenant and those for everyone, with the tasks that run and wait under each:
-- those of the tenant or, of limits for everyone and if asked for, of all tenants. All running tasks
-- are scanned, which the capacity of the nodes bounds; of the waiting ones at most 100,000.
--   $1 tenant_id, $2 whether to count the tasks of all tenants
with held as materialized (
        select shape_id, tenant_id, count(*) filter (where is_running) as running,
               count(*) filter (where not is_running) as waiting
          from (select shape_id, tenant_id, true as is_running
                  from live
                 where status = 'running'
                 union all
                select shape_id, tenant_id, true
                  from stopping_attempts
                 union all
               (select shape_id, tenant_id, false
                  from live
                 where status = 'waiting'
                   and ($2 or tenant_id = $1)
                 limit 100000)) as task
         group by shape_id, tenant_id
     ),
     used as materialized (
        select called.key, held.tenant_id, sum(held.running) as running,
               sum(held.waiting) as waiting
          from held
          join shapes s on s.id = held.shape_id
         cross join unnest(s.uses) as called (key)
         group by called.key, held.tenant_id
     )
select d.id, d.tenant_id, d.key, d.rate, d.concurrency, d.adaptive, d.factor, d.throttled_at,
       d.retry_at, coalesce(sum(used.running), 0)::int as running,
       coalesce(sum(used.waiting), 0)::int as waiting
  from downstreams d
  left join used
    on used.key = d.key
   and (used.tenant_id = $1 or ($2 and d.tenant_id is null))
 where d.tenant_id is null
    or d.tenant_id = $1
 group by d.id
 order by d.key, d.tenant_id nulls first

-- name: lock_revision
-- Lock the limits of all keys for a change of definitions until the commit, and count it.
update downstream_revision
   set defined = defined + 1

-- name: count_downstreams
--   $1 tenant_id or null for everyone's
select count(*)
  from downstreams
 where tenant_id is not distinct from $1::int

-- name: set_downstream
-- Set the limits of a key; what throttling had left of earlier ones is forgotten. Returns whether the
-- key is new.
--   $1 tenant_id or null for everyone, $2 key, $3 rate, $4 concurrency, $5 adaptive
insert into downstreams (tenant_id, key, rate, concurrency, adaptive)
values ($1::int, $2, $3::float8, $4::int, $5)
    on conflict (key, tenant_id) do update
   set rate = excluded.rate,
       concurrency = excluded.concurrency,
       adaptive = excluded.adaptive,
       factor = 1,
       throttled_at = null,
       retry_at = null
returning xmax = 0 as is_new

-- name: remove_downstream
--   $1 tenant_id or null for everyone, $2 key
delete from downstreams
 where key = $2
   and tenant_id is not distinct from $1::int
returning id

-- name: lock_throttled
-- Lock the limits that apply to the calls of running attempts on a node, in id order, and return with
-- each the longest pause that its calls ask for. A call without a key stands for all keys that its
-- task uses; keys that it does not use are ignored.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens, $5 keys, $6 pauses in seconds
select d.id, d.tenant_id, d.key, d.rate, d.concurrency, d.adaptive, d.factor, d.throttled_at,
       d.retry_at, called.retry_after, duly.now() as now
  from (select applying.id, max(call.retry_after) as retry_after
          from unnest($2::bigint[], $3::int[], $4::bigint[], $5::text[], $6::float8[])
               as call (task_id, attempt, token, key, retry_after)
          join live l on l.id = call.task_id
                     and l.attempt = call.attempt
                     and l.token = call.token
                     and l.node_id = $1
          join shapes s on s.id = l.shape_id
          join downstreams applying
            on applying.key = any(s.uses)
           and applying.key = coalesce(call.key, applying.key)
           and (applying.tenant_id is null or applying.tenant_id = l.tenant_id)
         group by applying.id) as called
  join downstreams d on d.id = called.id
 order by d.id
   for no key update of d

-- name: store_throttled
-- Store what throttling has left of limits; their rows are locked.
--   $1 ids, $2 factors, $3 throttled_at, $4 retry_at
with revision as (
        update downstream_revision
           set adapted = adapted + 1
        returning adapted
     )
update downstreams d
   set factor = given.factor,
       throttled_at = given.throttled_at,
       retry_at = given.retry_at,
       adapted = revision.adapted
  from revision,
       unnest($1::int[], $2::float8[], $3::timestamptz[], $4::timestamptz[])
       as given (id, factor, throttled_at, retry_at)
 where d.id = given.id

-- name: store_raised
-- Store the factors that the leader has raised, unless a limit was throttled or set meanwhile.
--   $1 ids, $2 factors, $3 throttled_at as it was
update downstreams d
   set factor = given.factor
  from unnest($1::int[], $2::float8[], $3::timestamptz[]) as given (id, factor, throttled_at)
 where d.id = given.id
   and d.throttled_at = given.throttled_at
