-- The audit reads large tables in batches: one statement reads the ids of the next batch through
-- the primary key, another looks these rows up by id, in one snapshot.

-- name: read_live_ids
--   $1 above this id, $2 how many
select id
  from live
 where id > $1
 order by id
 limit $2

-- name: examine_live
-- Return the drift of live tasks: states that are impossible, or that should have ended more than
-- $2 ago. A sequence is read at its current value, but rows as of the snapshot, so a visible token
-- above the sequence is drift.
--
-- A task waits for an upstream that is live, or whose end is not resolved for it yet. Both the end
-- and its resolution commit together with the rows read here, so the count is right in every
-- snapshot. The edges of a task with very many are not counted, for the sake of the others.
--
-- Findings are returned as `kind=evidence` in one array, which is nearly always empty. A list of
-- `values` took as long as all the rest: PostgreSQL prepares each of its rows again for every task.
--   $1 ids, $2 how late something may be, $3 grace
select split_part(said.what, '=', 1) as kind, seen.id as about,
       split_part(said.what, '=', 2) as evidence
  from (select duly.now() - $2::interval as late, (select last_value from tokens) as token) as clock
 cross join unnest($1::bigint[]) as given (id)
 cross join lateral (select * from live where live.id = given.id offset 0) as seen
  left join lateral (
        select tenant_id, shape_id, priority, delay_tolerance, execution_cap, max_attempts, on_lost,
               unique_key, unique_while
          from tasks where tasks.id = seen.id offset 0
       ) as task on true
  left join lateral (
        select true as found from ends where ends.task_id = seen.id offset 0
       ) as ended on true
  left join lateral (
        select id, ended_at from incarnations where incarnations.id = seen.incarnation_id offset 0
       ) as agent on true
  left join lateral (
        select true as found from shapes where shapes.id = seen.shape_id offset 0
       ) as shape on true
  left join lateral (
        -- A retry may be in a higher queue, and otherwise has the shape of its task.
        select (own.needs, own.requires) = (live.needs, live.requires)
               and (own.concurrency, own.user_id, own.function)
                   is not distinct from (live.concurrency, live.user_id, live.function) as is_same
          from shapes own
         cross join lateral (
                select * from shapes where shapes.id = seen.shape_id offset 0
               ) as live
         where own.id = task.shape_id
           and task.shape_id <> seen.shape_id
        offset 0
       ) as moved on true
  left join lateral (
        select count(*) as edges, count(*) filter (where edge.is_open) as open
          from (select e.is_counted
                       and coalesce(
                        (select true from live u where u.id = e.upstream_id),
                        (select u.resolved_to < e.dependant_id
                           from ended_upstreams u
                          where u.task_id = e.upstream_id),
                        false
                       ) as is_open
                  from edges e
                 where e.dependant_id = seen.id
                   and seen.attempt = 0
                   and seen.status <> 'running'
                 limit 301) as edge
       ) as awaited on true
  left join lateral (
        select high_water from servers where servers.number = (seen.id >> 17) & 255 offset 0
       ) as minter on true
 cross join lateral (
        select count(*) as tried, coalesce(max(attempt), 0) as highest
          from attempts
         where attempts.task_id = seen.id
           and seen.attempt > 0
       ) as past
 cross join lateral unnest(array_remove(array[
        case when seen.status = 'running' and (agent.id is null or agent.ended_at is not null)
             then concat('orphaned=', seen.token) end,
        case when seen.status = 'running'
                  and coalesce(seen.kill_at, seen.leased_at + seen.execution_cap + $3::interval)
                      < late
             then concat('overrunning=', seen.token) end,
        case when seen.cancel_requested_at + $3::interval < late
             then concat('not_cancelled=', seen.token) end,
        case when seen.status = 'scheduled' and seen.ready_at < late
             then concat('not_released=', seen.ready_at) end,
        case when ended.found then 'live_and_ended' end,
        case when task.tenant_id is null then 'live_without_task' end,
        case when (task.tenant_id, task.priority, task.delay_tolerance,
                   task.execution_cap, task.max_attempts, task.on_lost)
                  <> (seen.tenant_id, seen.priority, seen.delay_tolerance,
                      seen.execution_cap, seen.max_attempts, seen.on_lost)
                  or task.shape_id <> seen.shape_id
                     and (seen.failures = 0 or moved.is_same is not true)
                  or task.tenant_id is not null
                     and (task.unique_key, task.unique_while)
                         is distinct from (seen.unique_key, seen.unique_while)
             then 'mismatched' end,
        case when shape.found is null then 'unknown_shape' end,
        case when (past.tried, past.highest::bigint)
                  <> (seen.attempt - (seen.status = 'running')::int,
                      seen.attempt - (seen.status = 'running')::int)
             then concat('attempt_gap=', seen.attempt, ' ', seen.token) end,
        case when seen.token > clock.token then concat('token_ahead=', seen.token) end,
        case when seen.id >> 31 > coalesce(minter.high_water, -1) then 'minted_ahead' end,
        case when awaited.edges <= 300 and awaited.open <> seen.blocked_by
             then concat('miscounted=', seen.blocked_by, ' ', awaited.open) end
       ], null)) as said (what)

-- name: read_subqueue_heads
-- Return the first task of each subqueue (tenant, shape), and whether it should have started more
-- than $4 ago. In the index, a subqueue begins with its first task, so each takes one lookup.
--   $1 tenant_id and $2 shape_id above which to begin, $3 how many, $4 how late is late
with recursive heads as (
        (select tenant_id, shape_id, id, attempt, start_by
           from live
          where status = 'waiting'
            and (tenant_id, shape_id) > ($1, $2)
          order by tenant_id, shape_id, start_by, -priority, -remaining_path,
                   coalesce(expected_run_time, execution_cap), id
          limit 1)
        union all
        select next.*
          from heads
         cross join lateral (
                select tenant_id, shape_id, id, attempt, start_by
                  from live
                 where status = 'waiting'
                   and (tenant_id, shape_id) > (heads.tenant_id, heads.shape_id)
                 order by tenant_id, shape_id, start_by, -priority, -remaining_path,
                          coalesce(expected_run_time, execution_cap), id
                 limit 1
               ) as next
     )
select tenant_id, shape_id, id, attempt, start_by < duly.now() - $4::interval as is_late
  from heads
 limit $3

-- name: examine_cluster
-- Return the drift of nodes, their agents, attempts that stop, and the leader, of which there are few.
--   $1 how late something may be, $2 duty
with alive as materialized (
        select i.id, i.node_id, i.expires_at, n.removed_at
          from incarnations i
          join nodes n on n.id = i.node_id
         where i.ended_at is null
     )
select 'removed_node_alive' as kind, node_id as about, '' as evidence
  from alive
 where removed_at is not null
 union all
select 'two_agents', node_id, ''
  from alive
 group by node_id
having count(*) > 1
 union all
select 'not_expired', node_id, id::text
  from alive
 where expires_at < duly.now() - $1::interval
 union all
select 'not_stopped', task_id, token::text
  from stopping_attempts
 where stopped_at < duly.now() - $1::interval
 union all
select 'unknown_leader', t.server, t.term::text
  from terms t
 where t.duty = $2
   and not exists (select 1 from servers s where s.number = t.server)

-- name: read_declared
-- Return the capacity that each live agent has found on its node, and the administrator's override.
select i.id, i.node_id, i.capacity, n.capacity_override
  from incarnations i
  join nodes n on n.id = i.node_id
 where i.ended_at is null
   -- A worker offers fewer slots whenever it likes.
   and i.functions is null

-- name: read_task_ids
--   $1 above this id, $2 how many
select id
  from tasks
 where id > $1
 order by id
 limit $2

-- name: examine_tasks
-- Return the tasks that are neither live nor ended, and those that ended with another number of
-- attempts than recorded. Each table is read once, by id range, and grouped by task, in a fifth of
-- the time of looking up each task in each table.
--   $1 above this id, $2 to this id
select case when ended is null then 'lost_task' else 'attempt_gap' end as kind,
       id as about,
       case when ended is null then '' else 'ended' end as evidence
  from (select id, count(is_stored) as stored, count(is_live) as live, max(ended) as ended,
               count(attempt) as tried, coalesce(max(attempt), 0) as highest
          from (select id, true as is_stored, null::boolean as is_live, null::int as ended,
                       null::int as attempt
                  from tasks where id > $1 and id <= $2
                 union all
                select id, null, true, null, null
                  from live where id > $1 and id <= $2
                 union all
                select task_id, null, null, attempt, null
                  from ends where task_id > $1 and task_id <= $2
                 union all
                select task_id, null, null, null, attempt
                  from attempts where task_id > $1 and task_id <= $2
               ) as found
         group by id
       ) as summed
 where stored > 0
   and (live = 0 and ended is null or (tried, highest) <> (ended, ended))

-- name: read_keys
-- Return the tasks of idempotency keys, and whether they must be stored. Tasks older than the
-- history may be deleted, and a deletion by a plan's retention is recorded in `ended_at`. For the
-- key of a batch it is not; there, tasks submitted since yesterday are never deleted.
--   $1 tenant_id and $2 key above which to begin, $3 how many, $4 how long history is kept
select tenant_id, key, task_id,
       ended_at is null
       and day_of(task_id) >= case when batch is null
                                   then day_of(duly.now() - $4::interval)
                                   else day_of(duly.now()) - 1
                              end as is_kept
  from submissions
 where (tenant_id, key) > ($1, $2)
 order by tenant_id, key
 limit $3

-- name: examine_keys
-- Return which of these tasks are not stored.
--   $1 ids
select 'key_without_task' as kind, given.id as about, '' as evidence
  from unnest($1::bigint[]) as given (id)
  left join lateral (select id from tasks where tasks.id = given.id offset 0) as task on true
 where task.id is null

-- name: read_dead_letter_ids
--   $1 above this id, $2 how many
select task_id as id
  from dead_letters
 where task_id > $1
 order by task_id
 limit $2

-- name: examine_dead_letters
-- Return the dead letters whose task has not failed.
--   $1 ids
select 'letter_without_end' as kind, given.id as about, '' as evidence
  from unnest($1::bigint[]) as given (id)
 cross join lateral (
        select task_id from dead_letters where dead_letters.task_id = given.id offset 0
       ) as letter
  left join lateral (
        select status from ends where ends.task_id = given.id offset 0
       ) as ended on true
 where ended.status is distinct from 'failed'

-- name: publish
-- Store the findings of a complete round.
--   $1 scope, $2 how long it took, $3 how many rows, $4 drift, $5 how many were repaired
insert into audits (scope, completed_at, took, looked_at, drift, repaired, repaired_at)
values ($1, duly.now(), $2::interval, $3, $4::jsonb, $5::bigint,
        case when $5::bigint > 0 then duly.now() end)
    on conflict (scope) do update
   set completed_at = excluded.completed_at,
       took = excluded.took,
       looked_at = excluded.looked_at,
       drift = excluded.drift,
       repaired = audits.repaired + excluded.repaired,
       repaired_at = coalesce(excluded.repaired_at, audits.repaired_at)

-- name: read
select scope, completed_at, took, looked_at, drift, repaired, repaired_at
  from audits
 order by scope
