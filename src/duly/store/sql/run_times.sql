-- name: read_samples
-- Return how long attempts of each name ran, in the order of their entries. Only those tell how long
-- the work takes that did it, or were stopped at their cap.
--   $1 above this entry, $2 up to this entry
select t.tenant_id, t.name,
       array_agg(extract(epoch from a.finished_at - a.started_at)::float8 order by a.entry)
       as seconds
  from attempts a
 cross join lateral (
        select tasks.tenant_id, tasks.name
          from tasks
         where tasks.id = a.task_id
           and tasks.name is not null
        offset 0
       ) as t
 where a.entry > $1
   and a.entry <= $2
   -- Hidden from the planner, which might walk all attempts that succeeded.
   and (a.outcome in ('succeeded', 'capped')) is true
   and a.started_at is not null
 group by t.tenant_id, t.name

-- name: read
--   $1 tenant ids, $2 names
select r.tenant_id, r.name, r.samples, r.log_mean, r.log_deviation
  from unnest($1::int[], $2::text[]) as given (tenant_id, name)
 cross join lateral (
        select *
          from run_times
         where run_times.tenant_id = given.tenant_id
           and run_times.name = given.name
        offset 0
       ) as r

-- name: store
--   $1 tenant ids, $2 names, $3 samples, $4 log_mean, $5 log_deviation
insert into run_times (tenant_id, name, samples, log_mean, log_deviation, updated_at)
select tenant_id, name, samples, log_mean, log_deviation, duly.now()
  from unnest($1::int[], $2::text[], $3::bigint[], $4::float8[], $5::float8[])
       as given (tenant_id, name, samples, log_mean, log_deviation)
    on conflict (tenant_id, name) do update
   set samples = excluded.samples,
       log_mean = excluded.log_mean,
       log_deviation = excluded.log_deviation,
       updated_at = excluded.updated_at

-- name: trim
-- Drop all but the names of each tenant that were updated last.
--   $1 tenant ids, $2 how many to keep
delete from run_times
 using (
        select each.tenant_id, old.name
          from unnest($1::int[]) as each (tenant_id)
         cross join lateral (
                select r.name
                  from run_times r
                 where r.tenant_id = each.tenant_id
                 order by r.updated_at desc, r.name
                offset $2
               ) as old
       ) as dropped
 where run_times.tenant_id = dropped.tenant_id
   and run_times.name = dropped.name
