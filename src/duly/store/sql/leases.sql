-- Generic plans are cached, perhaps while a table is empty and a full scan looks as cheap as an
-- index lookup. So hot statements leave the planner no choice: rows are looked up by id in a lateral
-- subquery that cannot be flattened (it locks, or has `offset 0`), or by `= any(array(…))`.

-- name: read_shapes
--   $1 ids
select id, needs, requires, concurrency, queue, user_id, uses, function
  from shapes
 where id = any($1::int[])

-- name: read_known_nodes
-- Return capacity and labels of every node that is not removed, alive or not: a task is unplaceable
-- only if none of them could ever run it. Workers are left out: calls wait for one.
select last.capacity || n.capacity_override as capacity, n.labels
  from nodes n
 cross join lateral (
        select capacity
          from incarnations
         where node_id = n.id
         order by id desc
         limit 1
       ) as last
 where n.removed_at is null
   and n.tenant_id is null

-- name: read_running_changes
-- Return the attempts leased to incarnations above a token, and the known attempts that no longer
-- run (with a null incarnation). Known attempts are looked up by id. Stopping attempts run, too.
--   $1 incarnation ids, $2 above this token, $3 known task ids, $4 their tokens
select begun.id, begun.token, begun.incarnation_id, begun.shape_id, begun.tenant_id,
       begun.remaining
  from unnest($1::bigint[]) as given (id)
 cross join lateral (
        select id, token, incarnation_id, shape_id, tenant_id,
               leased_at + execution_cap - duly.now() as remaining
          from live
         where status = 'running'
           and incarnation_id = given.id
           and token > $2
         union all
        select task_id, token, incarnation_id, shape_id, tenant_id,
               leased_at + execution_cap - duly.now()
          from stopping_attempts
         where incarnation_id = given.id
           and token > $2
       ) as begun
 union all
select known.id, known.token, null, null, null, null
  from unnest($3::bigint[], $4::bigint[]) as known (id, token)
  left join lateral (
        select true as runs
          from live
         where live.id = known.id
           and live.token = known.token
         union all
        select true
          from stopping_attempts
         where stopping_attempts.token = known.token
        offset 0
       ) as l on true
 where l.runs is null

-- name: lease
-- Turn placements into leases. The incarnations and the quota fence stay locked until the commit,
-- so that no incarnation can expire or be drained, and no limit can change, meanwhile.
--   $1 duty, $2 term, $3 server, $4 task ids, $5 incarnation ids, $6 their revisions,
--   $7 the tasks' shapes, $8 backstop, $9 incarnations for which to return the tasks' details,
--   $10 revision of the limits, $11 fence value when usage was counted, or null
select id, attempt, token, incarnation_id, shape_id, execution_cap, payload, idempotency_key
  from hold_quota_fence($2, $10, $11) as held (term)
 cross join lateral lease_tasks(
        $1, held.term, $3::smallint, $4::bigint[], $5::bigint[], $6::int[], $7::int[],
        $8::interval, $9::bigint[]
       )

-- name: lock_attempts
-- Lock the reported running attempts in id order; a missing row is stale. The time is read row by
-- row, each after its lock, so the last one is later than all locks.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens
select held.*, duly.now() as at
  from (select *
          from unnest($2::bigint[], $3::int[], $4::bigint[]) as given (id, attempt, token)
         order by id) as report
 cross join lateral (
        select l.id, l.tenant_id, l.shape_id, l.attempt, l.token, l.failures, l.losses,
               l.max_attempts, l.on_lost, least(l.delay_tolerance, l.patience) as delay_tolerance,
               l.start_by, l.latest_start, l.leased_at, l.execution_cap, l.cancel_requested_at,
               l.node_id,
               retry_terms(l.id) as retry,
               coalesce((select s.uses from shapes s where s.id = l.shape_id), '{}') as uses
          from live l
         where l.id = report.id
           and l.attempt = report.attempt
           and l.token = report.token
           and l.node_id = $1
           for update
       ) as held

-- name: read_reported
-- Return the attempts that ended by a report of their node, rather than because the node was lost
-- or had left, or because their task was marked.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens
select report.id, report.attempt
  from unnest($2::bigint[], $3::int[], $4::bigint[]) as report (id, attempt, token)
 cross join lateral (
        select 1
          from attempts a
         where a.task_id = report.id
           and a.attempt = report.attempt
           and a.token = report.token
           and a.node_id = $1
           and a.outcome <> 'lost'
           and coalesce(a.reason ->> 'code', '') not in ('node_left', 'marked')
        offset 0
       ) as accepted

-- name: finish_attempts
-- Finish tasks whose attempts have succeeded, unless their cancellation was requested, in a single
-- statement. A missing row is stale or to be cancelled. A trigger queues ended upstreams for the
-- leader, which unblocks their dependants. Task ids are in ascending order, and a task's values are
-- found by its position among them, so rows are looked up and locked once, in that order; the time
-- is read row by row, each after its lock. A column of nulls may be sent as an empty array.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens, $5 exit codes, $6 run times in seconds,
--   $7 seconds since the end, $8 cpu_seconds, $9 peak_memory_mb, $10 wall_seconds, $11 log_size,
--   $12 log_tail, $13 results, $14 reasons
with held as (
        delete from live
         where id = any($2::bigint[])
           and attempt = ($3::int[])[width_bucket(id, $2)]
           and token = ($4::bigint[])[width_bucket(id, $2)]
           and node_id = $1
           and cancel_requested_at is null
        returning id, tenant_id, attempt, token, node_id, incarnation_id, leased_at, ready_at,
                  start_by, failures, losses, has_dependants, duly.now() as at,
                  width_bucket(id, $2) as place
     ),
     timed as not materialized (
        select held.*, finished_at, ($5::int[])[place] as exit_code,
               greatest(
                leased_at, finished_at - ($6::float8[])[place] * interval '1 second'
               ) as started_at
          from held
         cross join lateral (
                select greatest(leased_at, at - ($7::float8[])[place] * interval '1 second')
                       as finished_at
               ) as ended
     ),
     recorded as (
        insert into attempts (
                task_id, attempt, tenant_id, token, node_id, incarnation_id, outcome, exit_code,
                leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb, wall_seconds,
                log_size, log_tail
               )
        select id, attempt, tenant_id, token, node_id, incarnation_id, 'succeeded', exit_code,
               leased_at, started_at, finished_at, ($8::real[])[place], ($9::real[])[place],
               ($10::real[])[place], ($11::bigint[])[place], ($12::bytea[])[place]
          from timed
     ),
     closed as (
        insert into ends (
                task_id, tenant_id, status, outcome, exit_code, reason, attempt, failures, losses,
                node_id, ready_at, start_by, started_at, finished_at, result
               )
        select id, tenant_id, 'done', 'succeeded', exit_code, ($14::text[])[place]::jsonb,
               attempt, failures, losses, node_id, ready_at, start_by, started_at, finished_at,
               ($13::text[])[place]::json
          from timed
     )
select id, has_dependants
  from held

-- name: end_attempts
-- Record ended attempts, and requeue or end their tasks. The live rows are locked; `status` is the
-- next status of each task, and `ready_at` the time of its retry.
--   arrays: $1 task ids, $2 attempts, $3 tokens, $4 outcomes, $5 exit codes, $6 reasons,
--   $7 started_at, $8 finished_at, $9 cpu_seconds, $10 peak_memory_mb, $11 wall_seconds,
--   $12 log_size, $13 log_tail, $14 status, $15 ready_at, $16 start_by, $17 failures, $18 losses,
--   $19 results, $20 reasons of the tasks, $21 shapes of the tasks from now on
with ended as materialized (
        select *
          from unnest(
                $1::bigint[], $2::int[], $3::bigint[], $4::outcome[], $5::int[], $6::text[],
                $7::timestamptz[], $8::timestamptz[], $9::real[], $10::real[], $11::real[],
                $12::bigint[], $13::bytea[], $14::status[], $15::timestamptz[],
                $16::timestamptz[], $17::int[], $18::int[], $19::text[], $20::text[], $21::int[]
               ) as ended (
                id, attempt, token, outcome, exit_code, reason,
                started_at, finished_at, cpu_seconds, peak_memory_mb, wall_seconds,
                log_size, log_tail, status, ready_at,
                start_by, failures, losses, result, task_reason, shape_id
               )
     ),
     held as materialized (
        select ended.*, l.*
          from ended
         cross join lateral (
                select tenant_id, node_id, incarnation_id, leased_at,
                       live.ready_at as was_ready_at, live.start_by as was_start_by
                  from live
                 where live.id = ended.id
                   and live.attempt = ended.attempt
                   and live.token = ended.token
                offset 0
               ) as l
     ),
     recorded as (
        insert into attempts (
                task_id, attempt, tenant_id, token, node_id, incarnation_id, outcome, exit_code,
                reason, leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb,
                wall_seconds, log_size, log_tail
               )
        select id, attempt, tenant_id, token, node_id, incarnation_id, outcome, exit_code,
               reason::jsonb, leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb,
               wall_seconds, log_size, log_tail
          from held
     ),
     requeued as (
        update live
           set status = case when live.is_paused then 'paused' else held.status end,
               shape_id = held.shape_id,
               ready_at = held.ready_at,
               start_by = held.start_by,
               failures = held.failures,
               losses = held.losses,
               reason = held.task_reason::jsonb,
               avoid_node_id = held.node_id,
               term = null, node_id = null, incarnation_id = null, token = null,
               leased_at = null, kill_at = null, cancel_requested_at = null
          from held
         where live.id = held.id
           and live.id = any(array(
                select id from held where status in ('scheduled', 'waiting')
               ))
     ),
     removed as (
        delete from live
         where id = any(array(
                select id from held where status in ('done', 'failed', 'cancelled')
               ))
     ),
     closed as (
        insert into ends (
                task_id, tenant_id, status, outcome, exit_code, reason, attempt, failures, losses,
                node_id, ready_at, start_by, started_at, finished_at, result
               )
        select id, tenant_id, status, outcome, exit_code, task_reason::jsonb, attempt, failures, losses,
               node_id, was_ready_at, was_start_by, started_at, finished_at, result::json
          from held
         where status in ('done', 'failed', 'cancelled')
     ),
     buried as (
        insert into dead_letters (task_id, tenant_id, code, failed_at)
        select id, tenant_id, task_reason::jsonb ->> 'code', finished_at
          from held
         where status = 'failed'
     )
select id, status
  from held

-- name: end_unstarted
-- End tasks that have not started, each with its reason; returns the tasks that were ended.
--   $1 task ids, $2 status, $3 reasons
select id from end_each_unstarted($1::bigint[], $2::status, $3::text[]::jsonb[])

-- name: release_due
-- Move due tasks from scheduled to waiting. The time is read once, in a subquery: comparing with a
-- volatile function would scan the whole index.
--   $1 limit
with due as materialized (
        select id
          from live
         where status = 'scheduled'
           and ready_at <= (select duly.now())
         order by ready_at
         limit $1
           for update skip locked
     )
update live
   set status = 'waiting'
 where id = any(array(select id from due))
returning tenant_id, shape_id, start_by

-- name: next_due
-- Return the seconds until the next task becomes due, and whether ended upstreams are pending.
select (select extract(epoch from ready_at - duly.now())::float8
          from live
         where status = 'scheduled'
         order by ready_at
         limit 1) as seconds,
       exists (select from ended_upstreams) as has_ended

-- name: read_vitals
-- Return the start time and clock of PostgreSQL, by which a restart or a clock step is detected, and
-- whether leases have expired or orphans exist, so that an idle leader writes nothing. Orphans of
-- recently ended incarnations are found by incarnation. Finding all of them scans every running
-- attempt, and dead rows that are still in a snapshot. Stopping attempts are few.
--   $1 whether to scan all running attempts, $2 how long an end counts as recent
with clock as materialized (
        select duly.now() as now
     )
select pg_postmaster_start_time() as started_at,
       clock.now,
       exists (
        select
          from incarnations
         where ended_at is null
           and expires_at <= clock.now
       ) as has_silent,
       exists (
        select
          from incarnations i
         cross join lateral (
                select
                  from live l
                 where l.incarnation_id = i.id
                   and l.status = 'running'
                 limit 1
               ) as orphan
         where i.ended_at > clock.now - $2::interval
       )
       or $1 and exists (
        select
          from live l
          join incarnations i on i.id = l.incarnation_id
         where l.status = 'running'
           and i.ended_at is not null
       )
       or exists (
        select
          from stopping_attempts s
         cross join lateral (
                select
                  from incarnations i
                 where i.id = s.incarnation_id
                   and i.ended_at is not null
                offset 0
               ) as over
       ) as has_orphans
  from clock

-- name: expire_incarnations
-- End the incarnations whose lease had expired by $1, waiting for concurrent leases on them. The
-- caller checked this time before, so that a clock step in between expires nothing.
--   $1 at
with silent as materialized (
        select id
          from incarnations
         where ended_at is null
           and expires_at <= $1
         order by id
           for update
     )
update incarnations
   set ended_at = duly.now(),
       end_reason = 'expired'
 where id = any(array(select id from silent))
   and expires_at <= $1
returning id, node_id

-- name: lock_orphans
-- Lock orphans: running attempts of any ended incarnation, not only of those that have just ended.
-- The token is checked again under the lock: a row that has moved on to another attempt meanwhile is
-- no orphan. An agent that left cleanly held nothing, so its remaining leases were never begun.
--   $1 limit
with orphans as materialized (
        select l.id, l.token, i.end_reason = 'left' as has_left,
               i.end_reason = 'removed' as was_removed
          from live l
          join incarnations i on i.id = l.incarnation_id
         where l.status = 'running'
           and i.ended_at is not null
         limit $1
     )
select held.*, orphan.has_left, orphan.was_removed
  from (select * from orphans order by id) as orphan
 cross join lateral (
        select l.id, l.tenant_id, l.shape_id, l.attempt, l.token, l.failures, l.losses,
               l.max_attempts, l.on_lost, least(l.delay_tolerance, l.patience) as delay_tolerance,
               l.start_by, l.latest_start, l.leased_at, l.execution_cap, l.cancel_requested_at,
               l.node_id,
               retry_terms(l.id) as retry,
               case when l.measured_token = l.token then l.running_since end as running_since,
               case when l.measured_token = l.token then l.cpu_seconds end as cpu_seconds,
               case when l.measured_token = l.token then l.peak_memory_mb end as peak_memory_mb
          from live l
         where l.id = orphan.id
           and l.token = orphan.token
           for update
       ) as held

-- name: read_lost_starts
-- Count the nodes and incarnations that were lost while starting a task: before the start was
-- reported, and without a renewal later than $2 after the lease. Also count all nodes, for
-- comparison. A task is left out if its running attempt, which is lost now, is not such a loss.
--   $1 task ids, $2 how long a start takes at most
select given.id, count(distinct lost.node_id)::int as nodes,
       count(distinct lost.incarnation_id)::int as incarnations,
       (select count(*)::int from nodes where removed_at is null) as cluster
  from unnest($1::bigint[]) as given (id)
 cross join lateral (
        select l.node_id, l.incarnation_id, l.leased_at, true as is_last
          from live l
         where l.id = given.id
         union all
        select a.node_id, a.incarnation_id, a.leased_at, false
          from attempts a
         where a.task_id = given.id
           -- Hidden from the planner, which might walk all attempts that went wrong.
           and (a.outcome = 'lost') is true
           and a.started_at is null
           and a.reason ->> 'code' = 'node_lost'
       ) as lost
  join incarnations i on i.id = lost.incarnation_id
                     and i.renewed_at < lost.leased_at + $2::interval
 group by given.id
having bool_or(lost.is_last)

-- name: lock_unplaceable
-- Lock waiting tasks of subqueues that have been ready since before $3. A task locked by another
-- transaction may be about to change its spec: it is skipped until the next call, so no lock order
-- is needed. Only the given subqueues are read: others may hold a million tasks.
--   $1 tenant ids, $2 shape ids, $3 ready before, $4 how many
select held.id, held.shape_id
  from unnest($1::int[], $2::int[]) as given (tenant_id, shape_id)
 cross join lateral (
        select id, shape_id
          from live
         where status = 'waiting'
           and tenant_id = given.tenant_id
           and shape_id = given.shape_id
           and ready_at <= $3
         limit $4
           for update skip locked
       ) as held
 limit $4
