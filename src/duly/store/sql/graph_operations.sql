-- name: begin_operation
-- Store an operation on a graph, replacing a pending one. Returns no row if the tenant has no such
-- graph, or if it is being cancelled: a cancellation is never replaced.
--   $1 tenant_id, $2 graph_id, $3 operation_id, $4 kind
insert into graph_operations (graph_id, tenant_id, id, kind, to_go, requested_at, touched_at)
select g.id, g.tenant_id, $3, $4, cardinality(g.task_ids), duly.now(), duly.now()
  from graphs g
 where g.id = $2
   and g.tenant_id = $1
    on conflict (graph_id) do update
   set id = excluded.id, kind = excluded.kind, to_go = excluded.to_go,
       requested_at = excluded.requested_at, touched_at = excluded.touched_at
 where graph_operations.kind <> 'cancel'
    or excluded.kind = 'cancel'
returning id

-- name: read_operation
--   $1 tenant_id, $2 graph_id
select kind
  from graph_operations
 where graph_id = $2
   and tenant_id = $1

-- name: lock_batch
-- Lock an operation and return its next batch of tasks. A cancellation goes from the last task to
-- the first, so that no task starts because its upstream was cancelled before it; other operations
-- go from the first, which start first. The batch is empty if the graph has been deleted. Returns
-- no row if the operation is done or was replaced.
--   $1 tenant_id, $2 graph_id, $3 operation_id, $4 batch size
select w.to_go,
       case w.kind
           when 'cancel' then g.task_ids[greatest(w.to_go - $4, 0) + 1 : w.to_go]
           else g.task_ids[
            cardinality(g.task_ids) - w.to_go + 1 : cardinality(g.task_ids) - w.to_go + $4
           ]
       end as ids
  from graph_operations w
  left join graphs g on g.id = w.graph_id
 where w.graph_id = $2
   and w.tenant_id = $1
   and w.id = $3
   for update of w

-- name: advance_operation
-- Store how many tasks of a locked operation are left.
--   $1 graph_id, $2 tasks left
update graph_operations
   set to_go = $2,
       touched_at = duly.now()
 where graph_id = $1

-- name: end_operation
--   $1 graph_id
delete from graph_operations
 where graph_id = $1

-- name: read_abandoned
-- Return an operation without progress for some time.
--   $1 interval
select tenant_id, graph_id, id, kind
  from graph_operations
 where touched_at <= duly.now() - $1::interval
 order by touched_at
 limit 1

-- name: pause_tasks
-- Pause tasks; returns the newly paused ones, and whether they run.
--   $1 tenant_id, $2 task ids
select id, runs from pause_tasks($1, $2::bigint[])

-- name: record_pause
-- Add who or what paused locked tasks to the event of their newest pause.
--   $1 task ids, $2 details
update events
   set details = $2::text::jsonb
  from (
        select task_id, max(id) as id
          from events
         where task_id = any($1::bigint[])
           and kind in ('paused', 'pause_requested')
         group by task_id
       ) as newest
 where events.task_id = newest.task_id
   and events.id = newest.id
   and events.task_id = any($1::bigint[])

-- name: read_pause
-- Return when a task was last paused, and by whom or what.
--   $1 tenant_id, $2 task id
select at, details
  from events
 where task_id = $2
   and tenant_id = $1
   and kind in ('paused', 'pause_requested')
 order by id desc
 limit 1

-- name: lock_paused
-- Lock and return the tasks that are paused; what is read of them afterwards cannot change.
--   $1 tenant_id, $2 task ids
select id
  from live
 where id = any($2::bigint[])
   and tenant_id = $1
   and is_paused
 order by id
   for update

-- name: count_from_pause
-- Move `ready_at` of locked, paused tasks forward to the time of their pause. A resume then
-- postpones start_by by the time since the pause, and does not give back the time waited before it.
--   $1 task ids
update live
   set ready_at = pause.at
  from (
        select task_id, max(at) as at
          from events
         where task_id = any($1::bigint[])
           and kind = 'paused'
         group by task_id
       ) as pause
 where live.id = pause.task_id
   and live.id = any($1::bigint[])
   and live.status = 'paused'
   and live.blocked_by = 0
   and live.ready_at < pause.at

-- name: resume_tasks
-- Resume paused tasks; returns their new state.
--   $1 tenant_id, $2 task ids
select id, shape_id, status, start_by from resume_tasks($1, $2::bigint[])

-- name: keep_latest_start
-- Cap the start_by of tasks that were just resumed, and are locked, at their latest start, or at
-- once if that has passed: a pause moves the start of a task, but not the `run_at` of a downstream
-- task.
--   $1 tenant_id, $2 task ids
update live
   set start_by = date_trunc('second', greatest(latest_start, ready_at))
 where id = any($2::bigint[])
   and tenant_id = $1
   and token is null
   and blocked_by = 0
   and start_by > greatest(latest_start, ready_at)
   and latest_start is not null
returning id, start_by
