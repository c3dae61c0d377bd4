-- name: intern_shapes
-- Insert the missing shapes, in key order, so that concurrent batches cannot deadlock.
--   $1 keys, $2 needs, $3 required labels, $4 concurrency, $5 queues, $6 user ids,
--   $7 keys of downstreams (JSON), $8 functions
insert into shapes (key, needs, requires, concurrency, queue, user_id, uses, function)
select key, needs::jsonb, requires::jsonb, concurrency::jsonb, queue, user_id,
       array(select jsonb_array_elements_text(uses::jsonb)), function::jsonb
  from unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[],
        $8::text[]
       ) as given (key, needs, requires, concurrency, queue, user_id, uses, function)
 order by key
    on conflict (key) do nothing

-- name: shapes_by_key
--   $1 keys
select id, key
  from shapes
 where key = any($1::text[])

-- name: _sent
-- The submitted tasks of tenants that exist. The values that many tasks share, their terms, are
-- sent and read once. A column that is null for every task is sent as an empty array, which unnest
-- pads with nulls. Every task has terms, and all terms have a task, so an inner join would return
-- the same; it is a full join because the planner never runs one as a nested loop.
--
-- The tenants stay locked against removal until the commit. A tenant that is being removed is
-- skipped with its tasks; a removed one is returned as gone, and its tasks are not stored.
     present as materialized (
        select t.id, t.removed_at is not null as is_gone
          from tenants t
         where t.id = any($20::int[])
         order by t.id
           for key share skip locked
     ),
     sent as (
        select each.*, tenant_id, user_id, shape_id, tier, delay_tolerance, execution_cap,
               max_attempts, on_lost, priority, is_limited, patience
          from unnest(
                $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[],
                $6::timestamptz[], $7::text[], $8::bytea[], $9::bigint[], $10::text[], $11::text[],
                $12::int[], $13::boolean[], $14::bigint[], $15::text[], $16::int[],
                $17::timestamptz[], $18::interval[], $19::interval[]
               ) as each (
                id, terms, payload, name, labels,
                run_at, key, body_hash, replay_of, unique_key, unique_while,
                blocked_by, has_dependants, graph_id, ref, remaining_path,
                latest_start, expected_run_time, run_time_bound
               )
          full join unnest(
                $20::int[], $21::int[], $22::int[], $23::text[], $24::interval[],
                $25::interval[], $26::int[], $27::text[], $28::int[], $29::boolean[], $30::interval[]
               ) with ordinality as terms (
                tenant_id, user_id, shape_id, tier, delay_tolerance,
                execution_cap, max_attempts, on_lost, priority, is_limited, patience, number
               ) on terms.number = each.terms
         -- `is not false` accepts null, so the planner cannot reduce the full join.
         where (tenant_id in (select id from present where not is_gone)) is not false
     ),

-- name: _admitted
        select given.*, now, ready_at,
               start_by_of(ready_at, delay_tolerance, patience, latest_start) as start_by,
               (case
                    when blocked_by > 0 then 'blocked'
                    when run_at > now then 'scheduled'
                    else 'waiting'
                end)::status as status
          from given
         cross join clock
         cross join lateral (select greatest(run_at, now) as ready_at) as ready

-- name: _stored
     stored as (
        insert into tasks (
                id, tenant_id, user_id, shape_id, name, tier, payload, labels,
                delay_tolerance, execution_cap, max_attempts, on_lost, priority, run_at,
                idempotency_key, replay_of, unique_key, unique_while, graph_id, ref,
                admitted_by, submitted_at
               )
        select id, tenant_id, user_id, shape_id, name, tier, payload::json,
               coalesce(labels, '{}')::jsonb,
               delay_tolerance, execution_cap, max_attempts, on_lost, priority, run_at,
               key, replay_of, unique_key, unique_while, graph_id, ref, $31, now
          from admitted
     ),
     queued as (
        insert into live (
                id, tenant_id, shape_id, status, priority, ready_at, start_by,
                delay_tolerance, execution_cap, max_attempts, on_lost, unique_key, unique_while,
                blocked_by, has_dependants, remaining_path, patience, latest_start,
                expected_run_time, run_time_bound
               )
        select id, tenant_id, shape_id, status,
               priority, ready_at, start_by,
               delay_tolerance, execution_cap, max_attempts, on_lost, unique_key, unique_while,
               coalesce(blocked_by, 0), coalesce(has_dependants, false),
               coalesce(remaining_path, 0), patience, latest_start, expected_run_time,
               run_time_bound
          from admitted
     )

-- name: _told
-- Return the stored tasks, and the tenants that are gone.
select id, now as submitted_at, ready_at, start_by, status,
       null::int as tenant_id, null::double precision as tokens, null::bigint as tasks_per_hour,
       null::bigint as burst, null::timestamptz as filled_at, null::bigint as held_by,
       null::int as gone
  from admitted
 where $32::boolean
 union all
select null, null, null, null, null, null, null, null, null, null, null, id
  from present
 where is_gone

-- name: _buckets
-- Lock the buckets of limited tenants, and compute the tokens of each.
     locked as materialized (
        select b.tenant_id, b.tokens, b.filled_at, p.tasks_per_hour, p.burst
          from unnest($33::int[]) as limited (tenant_id)
          join buckets b on b.tenant_id = limited.tenant_id
          join tenants t on t.id = limited.tenant_id
          join plans p on p.name = t.plan
         order by b.tenant_id
           for update of b skip locked
     ),
     clock as materialized (
        select duly.now() as now from (select count(*) from locked) as after_the_locks
     ),
     -- A tenant whose plan has lost its rate since then has null tokens, and is not limited.
     open as materialized (
        select tenant_id, tasks_per_hour, burst, greatest(now, filled_at) as filled_at,
               least(
                burst,
                tokens + greatest(extract(epoch from now - filled_at), 0)::double precision
                         * tasks_per_hour / 3600.0
               ) as tokens
          from locked, clock
     ),
     room as materialized (
        select jsonb_object_agg(tenant_id, coalesce(floor(tokens), 1000000)) as tokens from open
     ),

-- name: _charged
     spent as materialized (
        select jsonb_object_agg(tenant_id, tasks) as tasks
          from (
                select tenant_id, count(*) as tasks
                  from admitted
                 where is_limited
                 group by tenant_id
               ) as counted
     ),
     settled as (
        update buckets b
           set tokens = open.tokens - (spent.tasks ->> open.tenant_id::text)::int,
               filled_at = open.filled_at
          from open, spent
         where b.tenant_id = open.tenant_id
           and spent.tasks ? open.tenant_id::text
           and open.tokens is not null
     ),

-- name: _told_buckets
 union all
select null, null, null, null, null,
       tenant_id, tokens - coalesce((spent.tasks ->> tenant_id::text)::int, 0), tasks_per_hour,
       burst, filled_at, null, null
  from open, spent

-- name: insert_plain
-- Store and return tasks without keys, of tenants without a rate limit. Most tasks are of this
-- kind, and setting up the plan of `insert_tasks` takes as long as running this statement.
--   arrays, one value per task: $1 ids, $2 numbers of their terms, $3 payloads, $4 names,
--   $5 labels, $6 run_at, $7 idempotency keys, $8 hashes of the bodies, $9 replay_of, $10 unique keys,
--   $11 unique_while, $12 blocked_by, $13 has_dependants, $14 graph ids, $15 refs,
--   $16 remaining_path, $17 latest_start,
--   $18 expected_run_time, $19 run_time_bound; one value per terms: $20 tenant ids, $21 user ids,
--   $22 shape ids, $23 tiers, $24 delay_tolerance, $25 execution_cap, $26 max_attempts,
--   $27 on_lost, $28 priorities, $29 is_limited, $30 patience; then $31 admitted_by, $32 whether
--   to return the tasks
with
-- _sent
     given as (select * from sent),
     clock as materialized (select duly.now() as now),
     admitted as materialized (
-- _admitted
     ),
-- _stored
-- _told

-- name: insert_charged
-- Store tasks without keys, and return those for which there is a token. The same as
-- `insert_tasks`, without the checks of keys.
--   arrays, one value per task: $1 ids, $2 numbers of their terms, $3 payloads, $4 names,
--   $5 labels, $6 run_at, $7 idempotency keys, $8 hashes of the bodies, $9 replay_of, $10 unique keys,
--   $11 unique_while, $12 blocked_by, $13 has_dependants, $14 graph ids, $15 refs,
--   $16 remaining_path, $17 latest_start,
--   $18 expected_run_time, $19 run_time_bound; one value per terms: $20 tenant ids, $21 user ids,
--   $22 shape ids, $23 tiers, $24 delay_tolerance, $25 execution_cap, $26 max_attempts,
--   $27 on_lost, $28 priorities, $29 is_limited, $30 patience; then $31 admitted_by, $32 whether
--   to return the tasks, $33 limited tenants in
--   ascending order
with
-- _sent
     given as materialized (select * from sent),
-- _buckets
     allowed as materialized (
        select id
          from (
                select id, tenant_id, row_number() over (partition by tenant_id order by id) as rank
                  from given
                 where is_limited
               ) as ranked, room
         where rank <= (room.tokens ->> tenant_id::text)::numeric
     ),
     admitted as materialized (
-- _admitted
         where not is_limited or id in (select id from allowed)
     ),
-- _charged
-- _stored
-- _told
-- _told_buckets

-- name: insert_tasks
-- Store tasks, and return those that are new. A task is missing from the result if its idempotency
-- key is known, or if its tenant's bucket has no token for it; known keys are read with
-- `read_submissions`, in a separate statement whose snapshot includes what was just committed. If
-- another live task holds its unique key, that holder is returned; of two concurrent inserts, one
-- fails on the unique index and has to be repeated.
--
-- Tasks of a limited tenant are charged in the transaction that stores them. The bucket is locked
-- first, and the clock is read after the lock. A bucket locked by another transaction is skipped,
-- since this statement also stores tasks of other tenants: its tenant's tasks and the bucket are
-- then missing from the result, and the caller retries. Tasks without a known key take tokens in id
-- order; only stored tasks are charged.
--
-- A task is stored with the given number of blocking edges, which the caller inserts in the same
-- transaction.
--   arrays, one value per task: $1 ids, $2 numbers of their terms, $3 payloads, $4 names,
--   $5 labels, $6 run_at, $7 idempotency keys, $8 hashes of the bodies, $9 replay_of, $10 unique keys,
--   $11 unique_while, $12 blocked_by, $13 has_dependants, $14 graph ids, $15 refs,
--   $16 remaining_path, $17 latest_start,
--   $18 expected_run_time, $19 run_time_bound; one value per terms: $20 tenant ids, $21 user ids,
--   $22 shape ids, $23 tiers, $24 delay_tolerance, $25 execution_cap, $26 max_attempts,
--   $27 on_lost, $28 priorities, $29 is_limited, $30 patience; then $31 admitted_by, $32 whether
--   to return the tasks, $33 limited tenants in
--   ascending order
with
-- _sent
-- _buckets
     given as materialized (
        select sent.*,
               case
                   when sent.unique_key is not null
                   then (
                        select l.id
                          from live l
                         where l.tenant_id = sent.tenant_id
                           and l.unique_key = sent.unique_key
                           and (l.unique_while = 'live' or l.attempt = 0)
                         limit 1
                        )
               end as held_by
          from sent
     ),
     asking as (
        select id, tenant_id,
               key is null or row_number() over (partition by tenant_id, key order by id) = 1
                   as is_first
          from given
         where is_limited
           and held_by is null
           and not exists (
                select 1
                  from submissions s
                 where s.tenant_id = given.tenant_id
                   and s.key = given.key
                -- One lookup per task: a join could scan all keys.
                offset 0
               )
     ),
     ranked as (
        select id, tenant_id,
               sum(is_first::int) over (partition by tenant_id order by id) as rank
          from asking
     ),
     allowed as materialized (
        select id
          from ranked, room
         where rank <= (room.tokens ->> tenant_id::text)::numeric
     ),
     fresh as (
        insert into submissions (tenant_id, key, body_hash, task_id, created_at)
        select tenant_id, key, body_hash, id, now
          from given, clock
         where key is not null
           and held_by is null
           and (not is_limited or id in (select id from allowed))
         order by tenant_id, key
            on conflict (tenant_id, key) do nothing
        returning task_id
     ),
     admitted as materialized (
-- _admitted
         where (
                key is null
                and held_by is null
                and (not is_limited or id in (select id from allowed))
               )
            or id in (select task_id from fresh)
     ),
-- _charged
-- _stored
-- _told
 union all
select id, null, null, null, null, null, null, null, null, null, held_by, null
  from given
 where held_by is not null
-- _told_buckets

-- name: make_buckets
-- Create missing buckets, full, for tenants that have not submitted anything yet.
--   $1 the limited tenants in ascending order
insert into buckets (tenant_id, tokens, filled_at)
select t.id, coalesce(p.burst, 0), duly.now()
  from unnest($1::int[]) as limited (tenant_id)
  join tenants t on t.id = limited.tenant_id
  join plans p on p.name = t.plan
 where not exists (select 1 from buckets b where b.tenant_id = limited.tenant_id)
 order by t.id
    on conflict do nothing

-- name: read_submissions
-- Return what was submitted under idempotency keys.
--   $1 tenant ids, $2 keys
select s.tenant_id, s.key, s.body_hash, s.task_id, s.batch
  from unnest($1::int[], $2::text[]) as given (tenant_id, key)
 cross join lateral (
        select *
          from submissions
         where tenant_id = given.tenant_id
           and key = given.key
        offset 0
       ) as s

-- name: claim_batch_key
-- Claim an idempotency key for a whole batch; returns no row if the key is known.
--   $1 tenant_id, $2 key, $3 body_hash, $4 task ids
insert into submissions (tenant_id, key, body_hash, task_id, batch, created_at)
values ($1, $2, $3, ($4::bigint[])[1], $4, duly.now())
    on conflict (tenant_id, key) do nothing
returning task_id

-- name: set_batch
-- Store the tasks that a batch actually consists of.
--   $1 tenant_id, $2 key, $3 task ids
update submissions
   set batch = $3::bigint[],
       task_id = ($3::bigint[])[1]
 where tenant_id = $1
   and key = $2

-- name: read_admitted
-- Return which of these tasks have been stored, after the response to an insert was lost.
--   $1 ids
select t.id, t.submitted_at, l.ready_at, l.start_by, l.status
  from unnest($1::bigint[]) as given (id)
 cross join lateral (
        select id, submitted_at from tasks where tasks.id = given.id offset 0
       ) as t
  left join lateral (
        select ready_at, start_by, status from live where live.id = given.id offset 0
       ) as l on true

-- name: read_specs
-- Return the specs of a tenant's tasks, and whether they have ended.
--   $1 tenant_id, $2 ids
select t.*
  from unnest($2::bigint[]) as asked (id)
 cross join lateral (
        select t.id, t.ref, t.name, t.tier, t.payload, s.needs as resources, s.requires, s.concurrency, s.queue, s.user_id, t.delay_tolerance,
               t.execution_cap, t.max_attempts, t.on_lost, t.run_at, t.idempotency_key, t.labels, t.priority, t.replay_of,
               case
                   when t.unique_key is not null
                   then json_build_object('key', t.unique_key, 'while', t.unique_while)
               end as "unique",
               exists (select 1 from ends e where e.task_id = t.id) as has_ended
          from tasks t
          join shapes s on s.id = t.shape_id
         where t.id = asked.id
           and t.tenant_id = $1
        offset 0
       ) as t

-- name: lock_unstarted
-- Lock a live task before a change of its spec; `status` tells whether it may be changed.
--   $1 tenant_id, $2 id
select status, ready_at, duly.now() as now
  from live
 where id = $2
   and tenant_id = $1
   for update

-- name: update_task
-- Change the spec of a task that has not started; its live row is locked.
--   $1 id, $2 shape_id, $3 name, $4 tier, $5 payload, $6 labels, $7 delay_tolerance,
--   $8 execution_cap, $9 max_attempts, $10 on_lost, $11 priority, $12 run_at, $13 ready_at,
--   $14 now, $15 unique_key, $16 unique_while, $17 expected_run_time, $18 run_time_bound
with kept as (
        update tasks
           set shape_id = $2, name = $3, tier = $4, payload = $5::text::json,
               labels = $6::text::jsonb, delay_tolerance = $7, execution_cap = $8,
               max_attempts = $9, on_lost = $10, priority = $11, run_at = $12,
               unique_key = $15, unique_while = $16
         where id = $1
        returning id
     )
update live
   set shape_id = $2,
       delay_tolerance = $7,
       execution_cap = $8,
       max_attempts = $9,
       on_lost = $10,
       priority = $11,
       unique_key = $15,
       unique_while = $16,
       expected_run_time = $17,
       run_time_bound = $18,
       ready_at = $13,
       start_by = start_by_of($13::timestamptz, $7, patience, latest_start),
       status = (case
           when status = 'paused' then 'paused'
           when blocked_by > 0 then 'blocked'
           when $13 > $14::timestamptz then 'scheduled'
           else 'waiting'
       end)::status
 where id = $1
   and status in ('scheduled', 'blocked', 'waiting', 'paused')
returning id

-- name: read_holder
-- Return the live task that holds a unique key.
--   $1 tenant_id, $2 unique_key
select id
  from live
 where tenant_id = $1
   and unique_key = $2
   and (unique_while = 'live' or attempt = 0)

-- name: add_events
-- Record events: unusual steps of tasks.
--   $1 task ids, $2 tenant ids, $3 kinds, $4 details
insert into events (task_id, tenant_id, at, kind, details)
select task_id, tenant_id, duly.now(), kind, details::jsonb
  from unnest($1::bigint[], $2::int[], $3::text[], $4::text[])
    as given (task_id, tenant_id, kind, details)

-- name: request_cancel
-- Request the cancellation of tasks: running ones are marked, and stay until their processes are
-- gone. Returns the incarnation that runs each task, or null for a task that has ended at once.
--   $1 tenant_id, $2 task ids
select id, incarnation_id from request_cancel($1, $2::bigint[])

-- name: remove_dead_letter
-- Remove a task from the dead letters; returns no row if it is not one of them.
--   $1 tenant_id, $2 task_id
delete from dead_letters
 where tenant_id = $1
   and task_id = $2
returning task_id
