-- name: read_watermarks
-- Return the watermark of the ledger, and the last entry drawn from the sequence. Entries up to that
-- one may still be uncommitted.
select usage_watermark.booked_to,
       case when entries.is_called then entries.last_value else entries.last_value - 1 end as given
  from usage_watermark, entries

-- name: next_transaction_id
-- Assign and return a transaction id, which is above all assigned before. It must be a statement of
-- its own, after the entries were read: a transaction that has drawn one of them has a lower id.
-- (The xmax of a snapshot would not do: it is the first id that had not *ended*.)
select pg_current_xact_id()::text::bigint

-- name: have_ended_before
-- Return whether every transaction below an id has ended.
--   $1 transaction id
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= $1

-- name: lock_ledger
-- Lock the ledger and return its watermark.
select booked_to
  from usage_watermark
   for update

-- name: record
-- Record a range of attempts in the ledger, at their tenants' current prices.
--   $1 above this entry, $2 up to this entry, $3 bounds of tolerances, $4 urgencies, $5 factors,
--   $6 outcomes that are free
insert into usage as known (
        tenant_id, day, user_id, tier, urgency, factor,
        price_per_task, price_per_cpu_hour, price_per_gib_hour,
        tasks, attempts, cpu_us, granted_cpu_milli_us, granted_memory_mb_us,
        above_entry, last_entry, first_task_id
       )
select c.tenant_id, c.day, c.user_id, c.tier,
       ($4::text[])[c.band], ($5::numeric[])[c.band],
       coalesce(p.price_per_task, 0), coalesce(p.price_per_cpu_hour, 0),
       coalesce(p.price_per_gib_hour, 0),
       c.tasks, c.attempts, c.cpu_us, c.granted_cpu_milli_us, c.granted_memory_mb_us, $1, $2,
       c.first_task_id
  from count_usage($1, $2, null, $3::interval[], $6::outcome[]) as c
  left join lateral (
        select price_per_task, price_per_cpu_hour, price_per_gib_hour
          from tenants_with_plans
         where tenants_with_plans.tenant_id = c.tenant_id
        offset 0
       ) as p on true
    on conflict on constraint usage_one_of_a_kind do update
   set tasks = known.tasks + excluded.tasks,
       attempts = known.attempts + excluded.attempts,
       cpu_us = known.cpu_us + excluded.cpu_us,
       granted_cpu_milli_us = known.granted_cpu_milli_us + excluded.granted_cpu_milli_us,
       granted_memory_mb_us = known.granted_memory_mb_us + excluded.granted_memory_mb_us,
       last_entry = excluded.last_entry,
       first_task_id = least(known.first_task_id, excluded.first_task_id)

-- name: advance_watermark
-- Store the watermark of the locked ledger.
--   $1 entry
update usage_watermark
   set booked_to = $1

-- name: advance_entry_sequence
-- Move the sequence above the watermark, in case a failover lost the end of the sequence.
select setval('entries', booked_to)
  from usage_watermark
 where booked_to > (select last_value from entries)

-- name: read
-- Return the usage of tenants: what is booked, and what has ended since. Both are read in one
-- snapshot, so each attempt is counted exactly once.
--   $1 tenant ids, $2 first day, $3 last day; whether to tell apart $4 days, $5 tenants, $6 users,
--   $7 tiers, $8 urgencies; $9 bounds of tolerances, $10 urgencies, $11 factors, $12 outcomes that
--   are free, $13 how many
with mark as materialized (
        select booked_to from usage_watermark
     ),
     found as (
        select tenant_id, day, user_id, tier, urgency, factor,
               price_per_task, price_per_cpu_hour, price_per_gib_hour,
               tasks, attempts, cpu_us, granted_cpu_milli_us, granted_memory_mb_us
          from usage
         where tenant_id = any($1::int[])
           and day between $2 and $3
         union all
        select c.tenant_id, c.day, c.user_id, c.tier, ($10::text[])[c.band], ($11::numeric[])[c.band],
               p.price_per_task, p.price_per_cpu_hour, p.price_per_gib_hour,
               c.tasks, c.attempts, c.cpu_us, c.granted_cpu_milli_us, c.granted_memory_mb_us
          from mark
         cross join lateral count_usage(
                mark.booked_to, 9223372036854775807, $1::int[], $9::interval[], $12::outcome[]
               ) as c
          left join lateral (
                select coalesce(max(price_per_task), 0) as price_per_task,
                       coalesce(max(price_per_cpu_hour), 0) as price_per_cpu_hour,
                       coalesce(max(price_per_gib_hour), 0) as price_per_gib_hour
                  from tenants_with_plans
                 where tenants_with_plans.tenant_id = c.tenant_id
               ) as p on true
         where c.day between $2 and $3
     ),
     summed as materialized (
        select case when $4 then day end as day,
               case when $5 then tenant_id end as tenant_id,
               case when $6 then user_id end as user_id,
               case when $7 then tier end as tier,
               case when $8 then urgency end as urgency,
               factor, price_per_task, price_per_cpu_hour, price_per_gib_hour,
               sum(tasks)::bigint as tasks, sum(attempts)::bigint as attempts,
               sum(cpu_us) as cpu_us, sum(granted_cpu_milli_us) as granted_cpu_milli_us,
               sum(granted_memory_mb_us) as granted_memory_mb_us
          from found
         group by 1, 2, 3, 4, 5, 6, 7, 8, 9
         limit $13
     )
select summed.*, t.name as tenant, u.name as "user"
  from summed
  left join lateral (select name from tenants where tenants.id = summed.tenant_id offset 0)
       as t on true
  left join lateral (select name from users where users.id = summed.user_id offset 0)
       as u on true
 order by summed.day desc nulls last, t.name, u.name, summed.tier, summed.urgency

-- name: read_yesterday
-- Return yesterday's usage according to the ledger. The day is read once, in a subquery: comparing
-- with a volatile function would scan the whole ledger.
select tenant_id, day, user_id, tier, urgency, sum(tasks)::bigint as tasks,
       sum(attempts)::bigint as attempts, sum(cpu_us) as cpu_us,
       sum(granted_cpu_milli_us) as granted_cpu_milli_us,
       sum(granted_memory_mb_us) as granted_memory_mb_us,
       min(above_entry) as above_entry, max(last_entry) as last_entry,
       min(first_task_id) as first_task_id
  from usage
 where day = (select (duly.now() at time zone 'UTC')::date - 1)
 group by 1, 2, 3, 4, 5

-- name: recount
-- Recount the attempts that ended on a day.
--   $1 above this number, $2 up to this number, $3 day, $4 bounds of tolerances, $5 urgencies,
--   $6 outcomes that are free
select tenant_id, user_id, tier, ($5::text[])[band] as urgency,
       tasks, attempts, cpu_us, granted_cpu_milli_us, granted_memory_mb_us
  from count_usage($1, $2, null, $4::interval[], $6::outcome[])
 where day = $3

-- name: first_retained_id
-- Return the first id of the oldest day of history that is retained.
select first_id_of(min(substring(c.relname from '^tasks_(\d+)$')::int))
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'duly.tasks'::regclass

-- name: tenant_ids
select id
  from tenants

-- name: today
select (duly.now() at time zone 'UTC')::date

-- name: drop_usage
-- Delete the usage of days longer ago than $1.
--   $1 how long ago, $2 how many rows
delete from usage
 where ctid = any(array(
        select ctid
          from usage
         where day < (select ((duly.now() - $1::interval) at time zone 'UTC')::date)
         limit $2
       ))
