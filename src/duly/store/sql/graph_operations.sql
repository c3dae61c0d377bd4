-- name: make_wish
-- Write down what is to be done to a graph, in the place of what was to be done before. No row
-- comes back when the tenant has no such graph, or when it is being cancelled, which stands.
--   $1 tenant_id, $2 graph_id, $3 id of the wish, $4 kind
insert into graph_wishes (graph_id, tenant_id, id, kind, to_go, wished_at, touched_at)
select g.id, g.tenant_id, $3, $4, cardinality(g.task_ids), duly.now(), duly.now()
  from graphs g
 where g.id = $2
   and g.tenant_id = $1
    on conflict (graph_id) do update
   set id = excluded.id, kind = excluded.kind, to_go = excluded.to_go,
       wished_at = excluded.wished_at, touched_at = excluded.touched_at
 where graph_wishes.kind <> 'cancel'
    or excluded.kind = 'cancel'
returning id

-- name: read_wish
--   $1 tenant_id, $2 graph_id
select kind
  from graph_wishes
 where graph_id = $2
   and tenant_id = $1

-- name: take_piece
-- Lock a wish, and return the tasks that are next: of a cancel the last ones, so that nobody
-- starts because its upstream was cancelled before it; else the first ones, which start first.
-- None are when the graph is forgotten. No row comes back when the wish is done, or another is in
-- its place.
--   $1 tenant_id, $2 graph_id, $3 id of the wish, $4 how many
select w.to_go,
       case w.kind
           when 'cancel' then g.task_ids[greatest(w.to_go - $4, 0) + 1 : w.to_go]
           else g.task_ids[
            cardinality(g.task_ids) - w.to_go + 1 : cardinality(g.task_ids) - w.to_go + $4
           ]
       end as ids
  from graph_wishes w
  left join graphs g on g.id = w.graph_id
 where w.graph_id = $2
   and w.tenant_id = $1
   and w.id = $3
   for update of w

-- name: move_wish
-- Say how many tasks of a locked wish are still to be gone through.
--   $1 graph_id, $2 how many
update graph_wishes
   set to_go = $2,
       touched_at = duly.now()
 where graph_id = $1

-- name: end_wish
--   $1 graph_id
delete from graph_wishes
 where graph_id = $1

-- name: read_abandoned
-- Return a wish that nobody has gone on with for a time.
--   $1 for how long
select tenant_id, graph_id, id, kind
  from graph_wishes
 where touched_at <= duly.now() - $1::interval
 order by touched_at
 limit 1

-- name: pause_tasks
-- Pause tasks; returns those that were not, and whether they run.
--   $1 tenant_id, $2 task ids
select id, runs from pause_tasks($1, $2::bigint[])

-- name: note_pause
-- Say with the newest pause of tasks, which are locked, who or what has paused them.
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
-- Lock tasks that are paused; returns them. What is read after it, nobody changes any more.
--   $1 tenant_id, $2 task ids
select id
  from live
 where id = any($2::bigint[])
   and tenant_id = $1
   and is_paused
 order by id
   for update

-- name: count_from_pause
-- Let tasks that are locked, and paused, be ready since they were paused, if they were before
-- that: a resume moves their start_by by the time since then, which does not give back what
-- they had waited before.
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
-- Let tasks go on that are paused; returns them as they are now.
--   $1 tenant_id, $2 task ids
select id, shape_id, status, start_by from resume_tasks($1, $2::bigint[])

-- name: keep_latest_start
-- A pause moves the start of a task, but no `run_at` of one behind it: let tasks that were resumed
-- just now, and are locked, start by when those ask for it, at once if that is over.
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
