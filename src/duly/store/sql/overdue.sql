-- name: read_page
-- Read a page of waiting tasks whose start_by lies in a range, in the order of the index of
-- subqueues, and return those that are overdue and have no event yet that says so of this wait. The
-- event is the only mark: to mark a million tasks in `live` would rewrite a million rows that the
-- scheduler reads. If the page is full, its last task is returned in any case: the next page begins
-- after it. No more than $10 tasks are read, however many of them are marked. Takes no locks.
--   $1 above this start_by, $2 up to this one; the task to begin after: $3 tenant_id, $4 shape_id,
--   $5 start_by, $6 priority, $7 remaining_path, $8 expected run time, $9 id; $10 how many
with recursive subqueues as (
        (select tenant_id, shape_id, start_by
           from live
          where status = 'waiting'
            and (tenant_id, shape_id) >= ($3::int, $4::int)
          order by tenant_id, shape_id, start_by
          limit 1)
        union all
        select next.tenant_id, next.shape_id, next.start_by
          from subqueues
         cross join lateral (
                select tenant_id, shape_id, start_by
                  from live
                 where status = 'waiting'
                   and (tenant_id, shape_id) > (subqueues.tenant_id, subqueues.shape_id)
                 order by tenant_id, shape_id, start_by
                 limit 1
               ) as next
     ),
     page as materialized (
        select task.*
          from subqueues
         cross join lateral (
                select id, tenant_id, shape_id, start_by, priority, remaining_path,
                       coalesce(expected_run_time, execution_cap) as expected_run_time,
                       ready_at, delay_tolerance, patience
                  from live
                 where status = 'waiting'
                   and tenant_id = subqueues.tenant_id
                   and shape_id = subqueues.shape_id
                   and start_by > $1
                   and start_by <= $2
                   and (start_by, -priority, -remaining_path,
                        coalesce(expected_run_time, execution_cap), id) > (
                        case
                            when (subqueues.tenant_id, subqueues.shape_id) = ($3, $4) then $5
                            else $1::timestamptz
                        end,
                        -$6::int, -$7::int, $8::interval, $9::bigint
                       )
                 order by tenant_id, shape_id, start_by, -priority, -remaining_path,
                          coalesce(live.expected_run_time, execution_cap), id
                 limit $10
               ) as task
         where subqueues.start_by <= $2
         limit $10
     ),
     numbered as materialized (
        select page.*, row_number() over () as number,
               overdue_at(start_by, ready_at, delay_tolerance, patience) <= duly.now()
               and not exists (
                select 1
                  from events e
                 where e.task_id = page.id
                   and e.kind = 'overdue'
                   and e.at >= page.ready_at
               ) as is_new
          from page
     )
select n.id, n.tenant_id, n.shape_id, n.start_by, n.priority, n.remaining_path,
       n.expected_run_time,
       n.ready_at, least(n.delay_tolerance, n.patience) as delay_tolerance,
       n.is_new, n.number = $10 as is_last,
       task.on_overdue, shape.queue, tenant.plan
  from numbered n
  left join lateral (
        select t.payload ->> 'on_overdue' as on_overdue
          from tasks t
         where t.id = n.id
        offset 0
       ) as task on n.is_new
  left join lateral (
        select s.queue
          from shapes s
         where s.id = n.shape_id
        offset 0
       ) as shape on n.is_new
  left join lateral (
        select tn.plan
          from tenants tn
         where tn.id = n.tenant_id
        offset 0
       ) as tenant on n.is_new
 where n.is_new
    or n.number = $10
 order by n.number

-- name: mark
-- Record that tasks are overdue. Not before they waited, even if the clock was set back: that is how
-- a mark of this wait is told from one of an earlier wait.
--   $1 task ids, $2 tenant ids, $3 since when each waits
insert into events (task_id, tenant_id, at, kind)
select task_id, tenant_id, greatest(duly.now(), ready_at), 'overdue'
  from unnest($1::bigint[], $2::int[], $3::timestamptz[]) as given (task_id, tenant_id, ready_at)

-- name: cancel
-- Cancel overdue tasks, each with its reason; returns those that were cancelled.
--   $1 task ids, $2 reasons
select id from cancel_overdue($1::bigint[], $2::text[]::jsonb[])

-- name: count_overdue
-- Count the tasks that are overdue, up to 100,000: of the tenants with ids from $1 to $2.
--   $1 first tenant_id, $2 last tenant_id
with recursive subqueues as (
        (select tenant_id, shape_id, start_by
           from live
          where status = 'waiting'
            and tenant_id >= $1
            and tenant_id <= $2
          order by tenant_id, shape_id, start_by
          limit 1)
        union all
        select next.tenant_id, next.shape_id, next.start_by
          from subqueues
         cross join lateral (
                select tenant_id, shape_id, start_by
                  from live
                 where status = 'waiting'
                   and (tenant_id, shape_id) > (subqueues.tenant_id, subqueues.shape_id)
                   and tenant_id <= $2
                 order by tenant_id, shape_id, start_by
                 limit 1
               ) as next
     ),
     clock as materialized (
        select duly.now() as now
     )
select count(*)::int
  from (
        select 1
          from clock
         cross join subqueues
         cross join lateral (
                select ready_at, start_by, delay_tolerance, patience
                  from live
                 where status = 'waiting'
                   and tenant_id = subqueues.tenant_id
                   and shape_id = subqueues.shape_id
                   and start_by <= clock.now
                offset 0
               ) as task
         where subqueues.start_by <= clock.now
           and overdue_at(task.start_by, task.ready_at, task.delay_tolerance, task.patience) <= clock.now
         limit 100000
       ) as counted

-- name: read_expected_ends
-- Return in how many seconds the next attempt of each incarnation is expected to end: after the
-- expected run time of its task; if that has passed or is unknown, after the bound that nearly all
-- runs keep, and else at its cap. Reads up to 100,000 running attempts.
select incarnation_id,
       greatest(extract(epoch from min(
           leased_at + least(
               case
                   when leased_at + expected_run_time > now then expected_run_time
                   when leased_at + run_time_bound > now then run_time_bound
               end,
               execution_cap
           )
       ) - now), 0)::float8 as seconds
  from (
        select incarnation_id, leased_at, expected_run_time, run_time_bound, execution_cap,
               duly.now() as now
          from live
         where status = 'running'
         limit 100000
       ) as running
 group by incarnation_id, now
