-- name: next_due
-- Return the seconds until the next schedule fires.
--   $1 schedules that are left alone for now
select extract(epoch from next_run_at - duly.now())::float8
  from schedules
 where paused_at is null
   and id <> all($1::bigint[])
 order by next_run_at
 limit 1

-- name: lock_due
-- Lock due schedules, earliest first, and return them with their tasks and graphs that have not
-- ended. The columns are read by the locking subquery: joining the table again would return the
-- rows as they were before the lock.
--   $1 how many, $2 tenants that are left alone for now, $3 schedules that are
with due as materialized (
        select id, tenant_id, user_id, task, graph, recurrence::text as recurrence, anchor,
               misfire, overlap, next_run_at, open_tasks, open_graphs
          from schedules
         where paused_at is null
           and next_run_at <= (select duly.now())
           and tenant_id <> all($2::int[])
           and id <> all($3::bigint[])
         order by next_run_at
         limit $1
           for update skip locked
     )
select id, tenant_id, user_id, task, graph, recurrence, anchor, misfire, overlap, next_run_at,
       case
           when open_tasks <> '{}'
           then array(
                select l.id
                  from unnest(due.open_tasks) as opened (id)
                 cross join lateral (
                        select live.id from live where live.id = opened.id offset 0
                       ) as l
                )
       end as open_tasks,
       case
           when open_graphs <> '{}'
           then array(
                select g.id
                  from unnest(due.open_graphs) as opened (id)
                 cross join lateral (
                        select id, task_ids from graphs where id = opened.id offset 0
                       ) as g
                 cross join lateral (
                        select 1 from live where id = any(g.task_ids) order by id desc limit 1
                       ) as is_live
                )
       end as open_graphs,
       duly.now() as now
  from due

-- name: advance
-- Store when locked schedules fire next, and which of their tasks and graphs have not ended.
--   $1 ids, $2 next_run_at, $3 open tasks, $4 open graphs, each of both as the text of an array,
--   or null for none
update schedules s
   set next_run_at = given.next_run_at,
       open_tasks = coalesce(given.open_tasks, '{}')::bigint[],
       open_graphs = coalesce(given.open_graphs, '{}')::bigint[]
  from unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[])
       as given (id, next_run_at, open_tasks, open_graphs)
 where s.id = given.id

-- name: live_tasks_of_graphs
-- Return the live tasks of graphs.
--   $1 graph ids
select g.id as graph_id, l.id
  from unnest($1::bigint[]) as asked (id)
 cross join lateral (select id, task_ids from graphs where id = asked.id offset 0) as g
 cross join lateral (select id from live where id = any(g.task_ids) offset 0) as l

-- name: live_tasks
-- Return which of these tasks are live.
--   $1 ids
select id
  from live
 where id = any($1::bigint[])

-- name: claim
-- Record the occurrences of fire times, and return those that were not recorded before. Sorted, so
-- that concurrent claims cannot deadlock. A column that is null for every fire time is sent as an
-- empty array, which unnest pads with nulls.
--   arrays: $1 schedule ids, $2 fire_at, $3 tenant ids, $4 scheduling types, $5 task ids,
--   $6 graph ids, $7 reasons, $8 last_at, $9 times; and $10 whether those that were missed are
--   claimed again
insert into occurrences (
        schedule_id, fire_at, tenant_id, scheduling_type, task_id, graph_id, reason, last_at,
        times, recorded_at
       )
select schedule_id, fire_at, tenant_id, scheduling_type, task_id, graph_id, reason::jsonb,
       last_at, coalesce(times, 1), (select duly.now())
  from unnest(
        $1::bigint[], $2::timestamptz[], $3::int[], $4::text[], $5::bigint[], $6::bigint[],
        $7::text[], $8::timestamptz[], $9::int[]
       ) as given (
        schedule_id, fire_at, tenant_id, scheduling_type, task_id, graph_id, reason, last_at,
        times
       )
 order by schedule_id, fire_at
    on conflict (schedule_id, fire_at) do update
   set task_id = excluded.task_id,
       graph_id = excluded.graph_id
 where $10::boolean
   and coalesce(occurrences.task_id, occurrences.graph_id) is null
   and coalesce(excluded.task_id, excluded.graph_id) is not null
returning schedule_id, fire_at

-- name: read_ran
-- Return which of these fire times produced a task or a graph.
--   $1 schedule_id, $2 fire times
select fire_at
  from occurrences
 where schedule_id = $1
   and fire_at = any($2::timestamptz[])
   and coalesce(task_id, graph_id) is not null

-- name: refuse
-- Record why claimed fire times produced no task after all.
--   $1 task ids, $2 reasons
update occurrences o
   set task_id = null,
       reason = given.reason::jsonb
  from unnest($1::bigint[], $2::text[]) as given (task_id, reason)
 where o.task_id = given.task_id

-- name: accounts
-- Return tenants with their plans, and the number of their waiting tasks if that is limited,
-- counted up to the limit. The tenants stay locked against removal until the commit; one that is
-- being removed is skipped.
--   $1 tenant ids
with present as materialized (
        select id
          from tenants
         where id = any($1::int[])
         order by id
           for key share skip locked
     )
select t.*,
       case
           when t.max_waiting is not null
           then (
                select count(*)
                  from (
                        select 1
                          from live
                         where tenant_id = t.tenant_id
                           and status = 'waiting'
                         limit t.max_waiting
                       ) as waiting
               ) + (
                select count(*)
                  from (
                        select 1
                          from live
                         where tenant_id = t.tenant_id
                           and status in ('scheduled', 'blocked', 'paused')
                         limit t.max_waiting
                       ) as later
               )
       end as waiting
  from present
  join tenants_with_plans t on t.tenant_id = present.id

-- name: lock_free_buckets
-- Lock the buckets of tenants, skipping those locked by other transactions, and return the locked
-- ones with the time. A missing bucket is created, full.
--   $1 tenant ids
with made as (
        insert into buckets (tenant_id, tokens, filled_at)
        select t.id, p.burst, duly.now()
          from tenants t
          join plans p on p.name = t.plan
         where t.id = any($1::int[])
           and p.burst is not null
           and not exists (select 1 from buckets b where b.tenant_id = t.id)
         order by t.id
            on conflict (tenant_id) do nothing
        returning tenant_id, tokens, filled_at
     ),
     locked as (
        select tenant_id, tokens, filled_at
          from buckets
         where tenant_id = any($1::int[])
         order by tenant_id
           for update skip locked
     )
select tenant_id, tokens, filled_at, duly.now() as now from made
 union all
select tenant_id, tokens, filled_at, duly.now() from locked

-- name: lock_tasks
-- Lock live tasks in id order.
--   $1 ids
select id
  from live
 where id = any($1::bigint[])
 order by id
   for update

-- name: drop_occurrences
-- Delete occurrences recorded more than $1 ago, unless their task, or a task of their graph, is
-- live.
--   $1 how long, $2 how many
delete from occurrences
 where (schedule_id, fire_at) in (
        select o.schedule_id, o.fire_at
          from occurrences o
         where o.recorded_at < duly.now() - $1::interval
           and not exists (select 1 from live l where l.id = o.task_id)
           and not exists (
                select 1
                  from graphs g
                 cross join lateral (select 1 from live where id = any(g.task_ids) limit 1) as part
                 where g.id = o.graph_id
               )
         order by o.recorded_at
         limit $2
       )

-- name: add
--   $1 id, $2 tenant_id, $3 user_id, $4 name, $5 task, $6 graph, $7 recurrence, $8 anchor,
--   $9 misfire, $10 overlap, $11 next_run_at, $12 now
insert into schedules (
        id, tenant_id, user_id, name, task, graph, recurrence, anchor, misfire, overlap,
        next_run_at, created_at, updated_at
       )
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)

-- name: lock_number
-- Prevent other transactions from adding schedules of a tenant until the commit.
--   $1 tenant_id
select pg_advisory_xact_lock(hashtext('duly.schedules'), $1::int)

-- name: count
-- Count the schedules of a tenant, up to $2.
--   $1 tenant_id, $2 how many
select count(*)
  from (select 1 from schedules where tenant_id = $1 limit $2) as counted

-- name: read
-- Return a page of a tenant's schedules, newest first.
--   $1 tenant_id, $2 below this id, $3 how many, $4 id, $5 user name, $6 due before
select s.id, s.tenant_id, s.user_id, s.name, s.task, s.graph, s.recurrence::text as recurrence,
       s.anchor, s.misfire, s.overlap, s.next_run_at, s.paused_at, s.created_at, s.updated_at,
       (select u.name from users u where u.id = s.user_id) as "user"
  from schedules s
 where s.tenant_id = $1
   and s.id < $2
   and ($4::bigint is null or s.id = $4)
   and ($5::text is null
        or s.user_id = (select u.id from users u where u.tenant_id = $1 and u.name = $5))
   and ($6::timestamptz is null or (s.next_run_at < $6 and s.paused_at is null))
 order by s.id desc
 limit $3

-- name: ids_by_name
-- Return the ids of a tenant's schedules of a name, newest first.
--   $1 tenant_id, $2 name, $3 how many
select id
  from schedules
 where tenant_id = $1
   and name = $2
 order by id desc
 limit $3

-- name: lock
-- Lock a schedule before a change; the clock is read after the lock.
--   $1 tenant_id, $2 id
with locked as materialized (
        select id, tenant_id, user_id, name, task, graph, recurrence::text as recurrence, anchor,
               misfire, overlap, next_run_at, paused_at, created_at, updated_at, open_tasks,
               open_graphs
          from schedules
         where tenant_id = $1
           and id = $2
           for update
     )
select locked.*, null::text as "user", duly.now() as now
  from locked

-- name: change
-- Store the new values of a locked schedule.
--   $1 id, $2 name, $3 task, $4 graph, $5 recurrence, $6 anchor, $7 misfire, $8 overlap,
--   $9 next_run_at, $10 paused_at, $11 open tasks, $12 open graphs, $13 now
update schedules
   set name = $2,
       task = $3,
       graph = $4,
       recurrence = $5,
       anchor = $6,
       misfire = $7,
       overlap = $8,
       next_run_at = $9,
       paused_at = $10,
       open_tasks = $11,
       open_graphs = $12,
       updated_at = $13
 where id = $1

-- name: remove
--   $1 tenant_id, $2 id
delete from schedules
 where tenant_id = $1
   and id = $2
returning id, name

-- name: newest
-- Return the tasks and graphs that a schedule submitted last, some of which may not have ended.
--   $1 schedule_id
select task_id, graph_id
  from occurrences
 where schedule_id = $1
   and coalesce(task_id, graph_id) is not null
 order by fire_at desc
 limit 1000

-- name: occurrences
-- Return the occurrences of a schedule, newest first.
--   $1 tenant_id, $2 schedule_id, $3 below this time, $4 how many, $5 only those that ran
select fire_at, task_id, graph_id, scheduling_type, reason, last_at, times, recorded_at
  from occurrences
 where schedule_id = $2
   and tenant_id = $1
   and fire_at < $3
   and (coalesce(task_id, graph_id) is not null or not $5::boolean)
 order by fire_at desc
 limit $4
