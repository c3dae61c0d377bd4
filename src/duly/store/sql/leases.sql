-- A plan is made once and kept, perhaps while a table is empty, when a scan of all of it
-- looks as cheap as a look-up. So hot statements leave no choice: rows are looked up by id in
-- a lateral that cannot be flattened (it locks, or says `offset 0`), or by `= any(array(…))`.

-- name: read_shapes
--   $1 ids
select id, needs, requires, concurrency, queue
  from shapes
 where id = any($1::int[])

-- name: read_known
-- Return what every node has that is not removed, alive or not: a task is hopeless only if
-- none of them could ever take it.
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

-- name: read_changes
-- Return what incarnations were given after a token, and which known attempts run no more
-- (their incarnation is null). Each known one is looked up by its id.
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
       ) as begun
 union all
select known.id, known.token, null, null, null, null
  from unnest($3::bigint[], $4::bigint[]) as known (id, token)
  left join lateral (
        select true as runs
          from live
         where live.id = known.id
           and live.token = known.token
        offset 0
       ) as l on true
 where l.runs is null

-- name: lease
-- Turn placements into leases. The incarnations stay locked until the commit, so that none
-- of them can be expired or drained meanwhile; so do the limits of tenants.
--   $1 duty, $2 term, $3 server, $4 task ids, $5 incarnation ids, $6 their revisions,
--   $7 the tasks' shapes, $8 backstop, $9 incarnations whose agents are told at once,
--   $10 the revision of the limits, $11 what was given when it was counted, or null
select id, attempt, token, incarnation_id, shape_id, execution_cap, payload, idempotency_key
  from hold_quotas($2, $10, $11) as held (term)
 cross join lateral lease_told(
        $1, held.term, $3::smallint, $4::bigint[], $5::bigint[], $6::int[], $7::int[],
        $8::interval, $9::bigint[]
       )

-- name: lock_attempts
-- Lock the running rows that reports speak of, in id order; a row left out is stale. The time
-- is read row by row, each after its lock, so that the last one comes after all of them.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens
select held.*, duly.now() as at
  from (select *
          from unnest($2::bigint[], $3::int[], $4::bigint[]) as given (id, attempt, token)
         order by id) as report
 cross join lateral (
        select l.id, l.tenant_id, l.shape_id, l.attempt, l.token, l.failures, l.losses,
               l.max_attempts, l.on_lost, least(l.delay_tolerance, l.patience) as delay_tolerance,
               l.start_by, l.latest_start, l.leased_at, l.execution_cap, l.cancel_requested_at,
               l.node_id
          from live l
         where l.id = report.id
           and l.attempt = report.attempt
           and l.token = report.token
           and l.node_id = $1
           for update
       ) as held

-- name: read_accepted
-- Return which attempts ended by a report of their own: not by being given away, because
-- their node was lost or had left.
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
           and coalesce(a.reason ->> 'code', '') <> 'node_left'
        offset 0
       ) as accepted

-- name: finish_attempts
-- Finish tasks whose attempts have succeeded, unless somebody wants them cancelled: all in one
-- statement, as nothing is left to decide. A row left out of the answer is stale or cancelled.
-- Who waits for one of them is told by the leader: a trigger notes that there is something to tell.
-- What is reported of a task is found by its place among the ids, which are in ascending order. So
-- rows are looked up, and locked, once and in that order; the time is read row by row, each after
-- its lock. A column in which no task has anything may be sent empty.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens, $5 exit codes, $6 for how long each ran,
--   $7 how long ago it ended, $8 cpu_seconds, $9 peak_memory_mb, $10 wall_seconds, $11 log_size,
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
                task_id, attempt, token, node_id, incarnation_id, outcome, exit_code,
                leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb, wall_seconds,
                log_size, log_tail
               )
        select id, attempt, token, node_id, incarnation_id, 'succeeded', exit_code,
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
-- Record ended attempts and what becomes of their tasks. The live rows are locked; `status`
-- is where each task goes next, and `ready_at` when, if it is to be tried again.
--   arrays: $1 task ids, $2 attempts, $3 tokens, $4 outcomes, $5 exit codes, $6 reasons,
--   $7 started_at, $8 finished_at, $9 cpu_seconds, $10 peak_memory_mb, $11 wall_seconds,
--   $12 log_size, $13 log_tail, $14 status, $15 ready_at, $16 start_by, $17 failures, $18 losses,
--   $19 results, $20 reasons of the tasks
with ended as materialized (
        select *
          from unnest(
                $1::bigint[], $2::int[], $3::bigint[], $4::outcome[], $5::int[], $6::text[],
                $7::timestamptz[], $8::timestamptz[], $9::real[], $10::real[], $11::real[],
                $12::bigint[], $13::bytea[], $14::status[], $15::timestamptz[],
                $16::timestamptz[], $17::int[], $18::int[], $19::text[], $20::text[]
               ) as ended (
                id, attempt, token, outcome, exit_code, reason,
                started_at, finished_at, cpu_seconds, peak_memory_mb, wall_seconds,
                log_size, log_tail, status, ready_at,
                start_by, failures, losses, result, task_reason
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
                task_id, attempt, token, node_id, incarnation_id, outcome, exit_code, reason,
                leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb, wall_seconds,
                log_size, log_tail
               )
        select id, attempt, token, node_id, incarnation_id, outcome, exit_code, reason::jsonb,
               leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb, wall_seconds,
               log_size, log_tail
          from held
     ),
     requeued as (
        update live
           set status = case when live.is_paused then 'paused' else held.status end,
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
-- End tasks that have not started, each for its reason; returns those that were still so.
--   $1 task ids, $2 status, $3 reasons
select id from end_each_unstarted($1::bigint[], $2::status, $3::text[]::jsonb[])

-- name: release_due
-- Let the tasks start whose time has come.
-- The time is read once, as a subquery: compared with a volatile function, the index would
-- be walked to its end.
--   $1 how many
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
-- Return how many seconds there are until the next task becomes due, and whether a task has
-- ended that others wait for.
select (select extract(epoch from ready_at - duly.now())::float8
          from live
         where status = 'scheduled'
         order by ready_at
         limit 1) as seconds,
       exists (select from ended_upstreams) as has_ended

-- name: read_vitals
-- Return what tells a restart of PostgreSQL, or a step of its clock, from ordinary time; and
-- whether there is anything to take back, so that a leader with nothing to do writes nothing.
-- What an incarnation has left that ended lately is found by it. What all have left is found by
-- passing all that runs, and all that has run and is in somebody's snapshot.
--   $1 whether to pass all that runs, $2 how long ago is lately
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
       ) as has_orphans
  from clock

-- name: expire_incarnations
-- End the incarnations whose lease had run out by $1. Waits for leases that are being made on
-- them. The time is the one that was looked at before, so that a clock that steps in between
-- ends none.
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
-- Lock running rows whose incarnation has ended: every one of them, not only those of the
-- incarnations that have just ended. The token is checked again under the lock: a row that
-- has moved on to another attempt while we waited for it is nobody's orphan. Whoever has
-- left held nothing by then, so what was leased to it was never begun.
--   $1 how many
with orphans as materialized (
        select l.id, l.token, i.end_reason = 'left' as has_left
          from live l
          join incarnations i on i.id = l.incarnation_id
         where l.status = 'running'
           and i.ended_at is not null
         limit $1
     )
select held.*, orphan.has_left
  from (select * from orphans order by id) as orphan
 cross join lateral (
        select l.id, l.tenant_id, l.shape_id, l.attempt, l.token, l.failures, l.losses,
               l.max_attempts, l.on_lost, least(l.delay_tolerance, l.patience) as delay_tolerance,
               l.start_by, l.latest_start, l.leased_at, l.execution_cap, l.cancel_requested_at,
               l.node_id,
               case when l.measured_token = l.token then l.running_since end as running_since,
               case when l.measured_token = l.token then l.cpu_seconds end as cpu_seconds,
               case when l.measured_token = l.token then l.peak_memory_mb end as peak_memory_mb
          from live l
         where l.id = orphan.id
           and l.token = orphan.token
           for update
       ) as held

-- name: read_lost_starts
-- Count who was lost with tasks as they began: before anybody had heard that they had, and within
-- $2 after they were given them. These are nodes, incarnations of them, and beside them all nodes
-- that there are. A task is left out whose running attempt, which is lost now, is none of these.
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
           and a.outcome = 'lost'
           and a.started_at is null
           and a.reason ->> 'code' = 'node_lost'
       ) as lost
  join incarnations i on i.id = lost.incarnation_id
                     and i.renewed_at < lost.leased_at + $2::interval
 group by given.id
having bool_or(lost.is_last)

-- name: lock_unplaceable
-- Lock waiting tasks of (tenant, shape) pairs that have been ready since before $3. Those that
-- somebody else has locked may be about to ask for something else; their turn is the next one, and
-- nobody is waited for, in whatever order they come. Only the pairs that are named are looked at:
-- the others may hold a million tasks.
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
