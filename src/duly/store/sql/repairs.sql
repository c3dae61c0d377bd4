-- Repairs that the audit may make by itself. Each statement locks the row and checks that it is
-- still as found; it returns no row if not.

-- name: lock_orphan
-- Lock a running row whose incarnation has ended or is unknown. Neither can become live again.
--   $1 id, $2 token
select l.id, l.tenant_id, l.shape_id, l.attempt, l.token, l.failures, l.losses, l.max_attempts,
       l.on_lost, least(l.delay_tolerance, l.patience) as delay_tolerance, l.start_by,
       l.latest_start, l.leased_at, l.execution_cap, l.cancel_requested_at, l.node_id,
       retry_terms(l.id) as retry
  from live l
 where l.id = $1
   and l.token = $2
   and l.node_id is not null
   and not exists (
        select 1 from incarnations i where i.id = l.incarnation_id and i.ended_at is null
       )
   for update of l

-- name: remove_live
-- Delete the live row of a task that has ended: an end is final. A running attempt is fenced by
-- that, and its agent is told to end it.
--   $1 id
delete from live
 where id = $1
   and exists (select 1 from ends where ends.task_id = $1)
returning id

-- name: lock_live
-- Lock a live row, as a change of its task does; the two rows are compared afterwards.
--   $1 id
select id
  from live
 where id = $1
   for update

-- name: copy_from_task
-- Copy the spec of a task to its live row, which is locked. A running row was leased by its own
-- spec and is left alone, unless its shape is unknown.
--   $1 id
update live
   set shape_id = t.shape_id,
       priority = t.priority,
       delay_tolerance = t.delay_tolerance,
       execution_cap = t.execution_cap,
       max_attempts = t.max_attempts,
       on_lost = t.on_lost,
       unique_key = t.unique_key,
       unique_while = t.unique_while
  from tasks t
  join shapes s on s.id = t.shape_id
 where live.id = $1
   and t.id = $1
   and t.tenant_id = live.tenant_id
   and (t.shape_id, t.priority, t.delay_tolerance, t.execution_cap, t.max_attempts, t.on_lost,
        t.unique_key, t.unique_while)
       is distinct from
       (live.shape_id, live.priority, live.delay_tolerance, live.execution_cap,
        live.max_attempts, live.on_lost, live.unique_key, live.unique_while)
   and (live.token is null
        or (select count(*) from shapes where shapes.id = live.shape_id) = 0)
returning live.id

-- name: release
-- Move a task from scheduled to waiting if it became due more than $2 ago.
--   $1 id, $2 how late
update live
   set status = 'waiting'
 where id = $1
   -- Hidden from the planner, which could otherwise scan all scheduled tasks.
   and (status = 'scheduled') is not false
   and ready_at < duly.now() - $2::interval
returning id

-- name: advance_tokens
-- Draw and discard tokens until the sequence has passed the token of a task. With setval, the
-- sequence could be set back behind a token that was just drawn.
--   $1 id, $2 how many at once
select max(nextval('tokens')) as id
  from (select live.token - (select last_value from tokens) as many
          from live
         where live.id = $1
           and live.token is not null) as ahead
 cross join generate_series(1, least(ahead.many, $2))

-- name: raise_high_water
-- Raise the high-water mark of a server to the second of an id that was minted under its number.
--   $1 id
update servers
   set high_water = $1::bigint >> 31
 where number = ($1::bigint >> 17) & 255
   and high_water < $1::bigint >> 31
returning number as id

-- name: read_awaited
-- Return the number of unresolved edges of a locked task, one upstream that ended without meeting
-- its condition, and whether the end of any upstream is unknown. Resolving an edge locks the task
-- first, so no edge seen here is being resolved meanwhile.
--   $1 id
select count(*) filter (where is_open)::int as open,
       (array_agg(edge.upstream_id order by edge.upstream_id)
            filter (where not is_open and not is_met(edge.condition, ended.status)))[1] as doomed_by,
       coalesce(bool_or(not is_open and ended.status is null), false) as is_unknown
  from (select e.dependant_id, e.upstream_id, e.condition,
               coalesce(
                (select true from live u where u.id = e.upstream_id),
                (select u.resolved_to < e.dependant_id
                   from ended_upstreams u
                  where u.task_id = e.upstream_id),
                false
               ) as is_open
          from edges e
         where e.dependant_id = $1
           and e.is_counted) as edge
  left join lateral (
        select status from ends where ends.task_id = edge.upstream_id offset 0
       ) as ended on true

-- name: end_doomed
-- Cancel a task whose upstream ended without meeting its condition.
--   $1 id, $2 upstream
select ended.id
  from end_each_unstarted(
        array[$1::bigint], 'cancelled',
        array(select upstream_reason($2, e.status) from ends e where e.task_id = $2)
       ) as ended

-- name: set_blocked_by
-- Set the number of edges that block a task, which is locked; without any, the task is released.
--   $1 id, $2 how many
update live
   set blocked_by = $2,
       ready_at = case when $2 > 0 then ready_at else greatest(ready_at, now) end,
       start_by = case
           when $2 > 0 then start_by
           else start_by_of(greatest(ready_at, now), delay_tolerance, patience, latest_start)
       end,
       status = (case
           when status = 'paused' then 'paused'
           when $2 > 0 then 'blocked'
           when ready_at > now then 'scheduled'
           else 'waiting'
       end)::status
  from (select duly.now() as now) as clock
 where id = $1
   and attempt = 0
   and incarnation_id is null
   and blocked_by <> $2
returning id

-- name: lock_node
-- Lock a node before its incarnations, as in `join_node`: a second lock order would deadlock.
--   $1 node_id
select removed_at is not null as is_removed
  from nodes
 where id = $1
   for update

-- name: end_agents
-- End the incarnations of a node that must not be live: all of a removed node, all but the newest
-- of any other.
--   $1 node_id, $2 whether it was removed
update incarnations
   set ended_at = duly.now(),
       end_reason = case when $2 then 'removed' else 'joined again' end
 where node_id = $1
   and ended_at is null
   and ($2 or id < (select max(id) from incarnations where node_id = $1 and ended_at is null))
returning id

-- name: lock_task
-- Lock a task, so that what is read of it next stays true.
--   $1 id
select id
  from tasks
 where id = $1
   for update

-- name: restore
-- Make a task live that is neither live nor ended, if nothing shows that it ever ran or ended, and
-- if it may be retried in case it did. Its delay tolerance counts from now. While another task
-- holds its unique key, it is left for a later audit. A task with upstreams is left to a person: it
-- is unknown which of their ends were resolved for it.
--   $1 id
insert into live (
        id, tenant_id, shape_id, status, priority, ready_at, start_by, delay_tolerance,
        execution_cap, max_attempts, on_lost, unique_key, unique_while, has_dependants
       )
select t.id, t.tenant_id, t.shape_id, (case when ready.at > now then 'scheduled' else 'waiting' end)::status,
       t.priority, ready.at, date_trunc('second', ready.at + t.delay_tolerance), t.delay_tolerance,
       t.execution_cap, t.max_attempts, t.on_lost, t.unique_key, t.unique_while,
       exists (
        select 1
          from edges e
         where e.upstream_id = $1
           and e.dependant_id > $1 - (3600::bigint << 31)
       )
  from (select duly.now() as now) as clock
 cross join lateral (select * from tasks where tasks.id = $1 offset 0) as t
 cross join lateral (select greatest(t.run_at, now) as at) as ready
 where t.on_lost = 'retry'
   and not exists (select 1 from ends where ends.task_id = $1)
   and not exists (select 1 from attempts where attempts.task_id = $1)
   and not exists (select 1 from edges where edges.dependant_id = $1)
   and not exists (select 1 from dead_letters where dead_letters.task_id = $1)
   and not exists (
        select 1
          from events
         where events.task_id = $1
           and kind in ('done', 'failed', 'cancelled')
       )
    on conflict do nothing
returning id

-- name: remove_dead_letter
-- Delete the dead letter of a task that is live, has ended in another way, or is not stored. If the
-- task is neither live nor ended, the dead letter is kept: it is all that is known of the end.
--   $1 id
delete from dead_letters
 where task_id = $1
   and (exists (select 1 from live where live.id = $1)
        or exists (select 1 from ends where ends.task_id = $1)
        or not exists (select 1 from tasks where tasks.id = $1))
   and not exists (select 1 from ends where ends.task_id = $1 and ends.status = 'failed')
returning task_id as id

-- name: record_repair
-- Record the repair of a task as an event, unless the task is no longer stored.
--   $1 id, $2 details
insert into events (task_id, tenant_id, at, kind, details)
select task.id, task.tenant_id, duly.now(), 'repaired', $2::jsonb
  from (select id, tenant_id from live where live.id = $1
         union all
        select id, tenant_id from tasks where tasks.id = $1) as task
 limit 1
