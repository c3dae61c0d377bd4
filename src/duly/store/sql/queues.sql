-- name: read
select name, level, off_peak, max_share, opens_at, closes_at, timezone, paused_at, paused_by
  from queues
 order by level, name

-- name: lock
-- Let nobody else change queues until the commit. Reads go on.
select pg_advisory_xact_lock(hashtext('duly.queues'), 0)

-- name: add
--   $1 name, $2 level, $3 off_peak, $4 max_share, $5 opens_at, $6 closes_at, $7 time zone
insert into queues (name, level, off_peak, max_share, opens_at, closes_at, timezone)
values ($1, $2, $3, $4, $5, $6, $7)

-- name: change
--   $1 name, $2 level, $3 off_peak, $4 max_share, $5 opens_at, $6 closes_at, $7 time zone
update queues
   set level = $2,
       off_peak = $3,
       max_share = $4,
       opens_at = $5,
       closes_at = $6,
       timezone = $7
 where name = $1

-- name: set_paused
-- Pause a queue, or resume it if $2 is null.
--   $1 name, $2 by whom
update queues
   set paused_at = case when $2::text is not null then duly.now() end,
       paused_by = $2
 where name = $1

-- name: remove
--   $1 name
delete from queues
 where name = $1
   and not is_built_in

-- name: read_users
-- Return how many tasks are live in a queue, counted up to 100,000, which plans include it, and the
-- names or ids of schedules that ask for it: of a task, or in a graph, whose tasks are a list or an
-- object.
--   $1 name, $2 how many schedules
select (select count(*)
          from (select
                  from live
                 where shape_id = any(array(select id from shapes where queue = $1))
                 limit 100000) as counted) as tasks,
       array(select name from plans where $1 = any(queues) order by name) as plans,
       array(select coalesce(name, id::text)
               from schedules
              where task ->> 'queue' = $1
                 or graph #>> '{defaults,queue}' = $1
                 or jsonb_path_exists(
                        graph,
                        case jsonb_typeof(graph -> 'tasks')
                            when 'object' then '$.tasks.*.queue ? (@ == $name)'::jsonpath
                            else '$.tasks[*].queue ? (@ == $name)'::jsonpath
                        end,
                        jsonb_build_object('name', $1::text)
                    )
              order by id
              limit $2) as schedules

-- name: read_promotion_terms
-- Return all queues, the queues that the plan of each tenant includes, and shapes by id: what decides
-- about the queues of retries.
--   $1 tenant ids, $2 shape ids
select (select json_agg(queues)::text from queues) as queues,
       (select json_object_agg(tenant_id, t.queues)::text
          from tenants_with_plans t
         where tenant_id = any($1::int[])) as allowed,
       (select json_object_agg(id, shapes)::text
          from shapes
         where id = any($2::int[])) as shapes,
       duly.now() as now

-- name: read_figures
-- Return for each queue how many tasks wait in it, how long the oldest has waited, and how many
-- tasks were submitted to it and started from it per minute. No counters are kept: the 100,000
-- oldest waiting tasks are counted, the last $3 tasks by their ids, and the last $3 attempts by
-- their entries. Where these span less than $2, the rates are those of the shorter time. An
-- attempt that has ended counts for the queue that its task was submitted to.
--   $1 tenant_id, or null for all, $2 the period of the rates, $3 how many rows to count
with clock as materialized (
        select duly.now() as now, (select last_value from entries) as last_entry
     ),
     newest as materialized (
        select t.tenant_id, t.shape_id, t.submitted_at as at
          from tasks t
         where t.id >= (
                -- A minute more: an id is minted a moment before its task is submitted.
                select extract(
                        epoch from now - $2::interval - interval '1 minute'
                                   - timestamptz '2026-01-01 00:00:00+00'
                       )::bigint << 31
                  from clock
               )
         order by t.id desc
         limit $3
     ),
     ended as materialized (
        select a.tenant_id, a.task_id, a.leased_at as at, a.finished_at
          from attempts a
         where a.entry > (select last_entry - $3 from clock)
     ),
     period as materialized (
        select now,
               least(
                $2::interval,
                (select now - min(at) from newest having count(*) >= $3)
               ) as coming,
               least(
                $2::interval,
                case when last_entry > $3 then (select now - min(finished_at) from ended) end
               ) as going
          from clock
     ),
     counted as (
        select shape_id, count(*) as waiting, min(ready_at) as oldest, 0 as arrived, 0 as started
          from (
                (select shape_id, ready_at
                   from live
                  where status = 'waiting'
                    and $1::int is null
                  order by id
                  limit 100000)
                 union all
                (select shape_id, ready_at
                   from live
                  where status = 'waiting'
                    and tenant_id = $1
                  limit 100000)
               ) as waiting
         group by shape_id
         union all
        select shape_id, 0, null, count(*), 0
          from newest, period
         where at >= now - coming
           and ($1::int is null or tenant_id = $1)
         group by shape_id
         union all
        select shape_id, 0, null, 0, count(*)
          from live, period
         where status = 'running'
           and leased_at >= now - going
           and ($1::int is null or tenant_id = $1)
         group by shape_id
         union all
        select task.shape_id, 0, null, 0, count(*)
          from period, ended
         cross join lateral (
                select shape_id from tasks where tasks.id = ended.task_id offset 0
               ) as task
         where ended.at >= now - going
           and ($1::int is null or ended.tenant_id = $1)
         group by task.shape_id
     )
select coalesce(s.queue, 'delayable') as name, sum(waiting)::bigint as waiting,
       extract(epoch from max(now) - min(oldest))::float8 as oldest_wait,
       coalesce(60 * sum(arrived) / nullif(extract(epoch from max(coming)), 0), 0)::float8
       as in_per_minute,
       coalesce(60 * sum(started) / nullif(extract(epoch from max(going)), 0), 0)::float8
       as out_per_minute
  from counted
  join shapes s on s.id = counted.shape_id
 cross join period
 group by 1
