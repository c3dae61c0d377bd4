-- name: intern_shapes
-- Make the shapes that do not exist yet. Sorted, so that two batches cannot deadlock.
--   $1 keys, $2 needs, $3 required labels
insert into shapes (key, needs, requires)
select key, needs::jsonb, requires::jsonb
  from unnest($1::text[], $2::text[], $3::text[]) as given (key, needs, requires)
 order by key
    on conflict (key) do nothing

-- name: shapes_by_key
--   $1 keys
select id, key
  from shapes
 where key = any($1::text[])

-- name: insert_tasks
-- Store tasks that were admitted, and return those that are new. A row left out of the
-- answer has an idempotency key that was seen before: read it with read_submissions, in
-- another statement, because only that one sees what has just been committed.
--   one array per column of `given`, $18 admitted_by, $19 whether to answer at all
with clock as materialized (select duly.now() as now),
     given as materialized (
        select *
          from unnest(
                $1::bigint[], $2::int[], $3::int[], $4::int[], $5::text[], $6::text[],
                $7::text[], $8::text[], $9::interval[], $10::interval[], $11::int[],
                $12::text[], $13::int[], $14::timestamptz[], $15::text[], $16::bytea[],
                $17::bigint[]
               ) as given (
                id, tenant_id, user_id, shape_id, name, tier,
                payload, labels, delay_tolerance, execution_cap, max_attempts,
                on_lost, priority, run_at, key, body_hash,
                replay_of
               )
     ),
     fresh as (
        insert into submissions (tenant_id, key, body_hash, task_id, created_at)
        select tenant_id, key, body_hash, id, now
          from given, clock
         where key is not null
         order by tenant_id, key
            on conflict (tenant_id, key) do nothing
        returning task_id
     ),
     admitted as materialized (
        select given.*, now, greatest(coalesce(run_at, now), now) as ready_at
          from given, clock
         where key is null
            or id in (select task_id from fresh)
     ),
     stored as (
        insert into tasks (
                id, tenant_id, user_id, shape_id, name, tier, payload, labels,
                delay_tolerance, execution_cap, max_attempts, on_lost, priority, run_at,
                idempotency_key, replay_of, admitted_by, submitted_at
               )
        select id, tenant_id, user_id, shape_id, name, tier, payload::json, labels::jsonb,
               delay_tolerance, execution_cap, max_attempts, on_lost, priority, run_at,
               key, replay_of, $18, now
          from admitted
     ),
     queued as (
        insert into live (
                id, tenant_id, shape_id, status, priority, ready_at, start_by,
                delay_tolerance, execution_cap, max_attempts, on_lost
               )
        select id, tenant_id, shape_id,
               (case when ready_at > now then 'scheduled' else 'waiting' end)::status,
               priority, ready_at, date_trunc('second', ready_at + delay_tolerance),
               delay_tolerance, execution_cap, max_attempts, on_lost
          from admitted
     )
select id, now as submitted_at, ready_at, date_trunc('second', ready_at + delay_tolerance) as start_by,
       (case when ready_at > now then 'scheduled' else 'waiting' end)::status as status
  from admitted
 where $19::boolean

-- name: read_submissions
-- Return what is known under idempotency keys.
--   $1 tenant ids, $2 keys
select s.tenant_id, s.key, s.body_hash, s.task_id, s.batch
  from unnest($1::int[], $2::text[]) as given (tenant_id, key)
  join submissions s on s.tenant_id = given.tenant_id and s.key = given.key

-- name: claim_batch_key
-- Claim an idempotency key for a whole batch. No row comes back when it was seen before.
--   $1 tenant_id, $2 key, $3 body_hash, $4 task ids
insert into submissions (tenant_id, key, body_hash, task_id, batch, created_at)
values ($1, $2, $3, ($4::bigint[])[1], $4, duly.now())
    on conflict (tenant_id, key) do nothing
returning task_id

-- name: set_batch
-- Say which tasks a batch really consists of.
--   $1 tenant_id, $2 key, $3 task ids
update submissions
   set batch = $3::bigint[],
       task_id = ($3::bigint[])[1]
 where tenant_id = $1
   and key = $2

-- name: read_admitted
-- Return which of these ids have been stored: asked when the answer to an insert was lost.
--   $1 ids
select t.id, t.submitted_at, l.ready_at, l.start_by, l.status
  from unnest($1::bigint[]) as given (id)
 cross join lateral (
        select id, submitted_at from tasks where tasks.id = given.id offset 0
       ) as t
  left join lateral (
        select ready_at, start_by, status from live where live.id = given.id offset 0
       ) as l on true

-- name: read_spec
-- Return what a task of a tenant asks for, and whether it has ended.
--   $1 tenant_id, $2 id
select t.name, t.tier, t.payload, s.needs as resources, s.requires, t.delay_tolerance, t.execution_cap,
       t.max_attempts, t.on_lost, t.run_at, t.idempotency_key, t.labels, t.priority, t.replay_of,
       exists (select 1 from ends e where e.task_id = t.id) as has_ended
  from tasks t
  join shapes s on s.id = t.shape_id
 where t.id = $2
   and t.tenant_id = $1

-- name: lock_unstarted
-- Lock a live task, for a change of what it asks; `status` tells whether it may be changed.
--   $1 tenant_id, $2 id
select status, ready_at, duly.now() as now
  from live
 where id = $2
   and tenant_id = $1
   for update

-- name: update_task
-- Change what a task that has not started asks for; its live row is locked.
--   $1 id, $2 shape_id, $3 name, $4 tier, $5 payload, $6 labels, $7 delay_tolerance,
--   $8 execution_cap, $9 max_attempts, $10 on_lost, $11 priority, $12 run_at, $13 ready_at,
--   $14 now
with kept as (
        update tasks
           set shape_id = $2, name = $3, tier = $4, payload = $5::text::json,
               labels = $6::text::jsonb, delay_tolerance = $7, execution_cap = $8,
               max_attempts = $9, on_lost = $10, priority = $11, run_at = $12
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
       ready_at = $13,
       start_by = date_trunc('second', $13::timestamptz + $7),
       status = (case when $13 > $14::timestamptz then 'scheduled' else 'waiting' end)::status
 where id = $1
   and status in ('scheduled', 'waiting')
returning id

-- name: add_events
-- Note unusual steps.
--   $1 task ids, $2 tenant ids, $3 kinds, $4 details
insert into events (task_id, tenant_id, at, kind, details)
select task_id, tenant_id, duly.now(), kind, details::jsonb
  from unnest($1::bigint[], $2::int[], $3::text[], $4::text[])
    as given (task_id, tenant_id, kind, details)

-- name: take_dead_letter
-- Take a task out of the dead letters; no row comes back when it is not among them.
--   $1 tenant_id, $2 task_id
delete from dead_letters
 where tenant_id = $1
   and task_id = $2
returning task_id
