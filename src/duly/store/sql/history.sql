-- name: ensure_days
-- Create the partitions from yesterday to a week ahead.
call ensure_days(day_of(duly.now()) - 1, day_of(duly.now()) + 8)

-- name: read_days
-- Return the days older than $1 that have a partition, oldest first.
--   $1 how long history is kept
select day
  from (select substring(c.relname from '^tasks_(\d+)$')::int as day
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'duly.tasks'::regclass) as partitions
 where day < day_of(duly.now() - $1::interval)
 order by day

-- name: drop_day
--   $1 day
call drop_day($1)

-- name: read_survivors
-- Return the live tasks of a day and of earlier days: their history outlives its partition.
--   $1 day
select id
  from live
 where id < first_id_of($1 + 1)

-- name: drop_outlived
-- Delete tasks that outlived their partition and ended long ago. A task is kept while one of its
-- attempts is not booked in the ledger, and while a live task depends on it.
--   $1 how long ago, $2 how many
with old as (
        select task_id, finished_at
          from ends_rest
         where finished_at < duly.now() - $1::interval
           and not exists (
                select 1
                  from attempts_rest a
                 where a.task_id = ends_rest.task_id
                   and a.entry > (select booked_to from usage_watermark)
               )
           and not exists (
                select 1
                  from edges e
                 cross join lateral (
                        select from live l where l.id = e.dependant_id offset 0
                       ) as is_live
                 where e.upstream_id = ends_rest.task_id
               )
         limit $2
     ),
     noted as (
        update submissions s
           set ended_at = old.finished_at
          from old
          join tasks_rest t on t.id = old.task_id
         where s.tenant_id = t.tenant_id
           and s.key = t.idempotency_key
           and s.task_id = old.task_id
     ),
     specs as (delete from former_specs using old where former_specs.task_id = old.task_id),
     parts as (delete from stages using old where stages.task_id = old.task_id),
     young as (delete from children using old where children.task_id = old.task_id),
     letters as (delete from dead_letters using old where dead_letters.task_id = old.task_id),
     steps as (delete from events_rest using old where events_rest.task_id = old.task_id),
     tries as (delete from attempts_rest using old where attempts_rest.task_id = old.task_id),
     asked as (delete from tasks_rest using old where tasks_rest.id = old.task_id),
     waited as (delete from edges_rest using old where edges_rest.dependant_id = old.task_id)
delete from ends_rest
 using old
 where ends_rest.task_id = old.task_id

-- name: read_cutoffs
-- Return the tenants whose plans have a shorter retention than $1, and the first day of which they
-- keep the tasks that ended on it.
--   $1 how long history is kept
select t.id as tenant_id, first.day, first_id_of(first.day) as end_id
  from tenants t
  join plans p on p.name = t.plan
 cross join lateral (select day_of(duly.now() - p.retention) as day) as first
 where p.retention < $1::interval
 order by t.id

-- name: read_aged
-- Return the tasks of tenants, from an id on, that were submitted before a day, tenant by tenant
-- and in id order.
--   $1 tenant ids, $2 first ids, $3 days, $4 how many
select given.tenant_id, given.day, aged.id
  from unnest($1::int[], $2::bigint[], $3::int[]) as given (tenant_id, first_id, day)
 cross join lateral (
        select id
          from tasks
         where tenant_id = given.tenant_id
           and id >= given.first_id
           and id < first_id_of(given.day)
         order by id
       ) as aged
 limit $4

-- name: delete_aged
-- Delete those of the given tasks that ended before a day, and all rows that belong to them. A task
-- is kept if a live task depends on it and may read its result, if its edges are not resolved yet,
-- or if an attempt is not booked in the ledger. Returns the deleted tasks with their graphs, and
-- whether they have run.
--   $1 ids, $2 days, $3 the lowest id, $4 the highest
with needed as materialized (
        select e.upstream_id as id
          from edges e
         cross join lateral (select from live l where l.id = e.dependant_id offset 0) as is_live
         where e.upstream_id = any($1::bigint[])
           -- By its id, a dependant is at most an hour older than its upstream.
           and e.dependant_id > $3::bigint - (3600::bigint << 31)
     ),
     old as materialized (
        select given.id, ended.tenant_id, ended.finished_at, task.idempotency_key, task.graph_id,
               ended.attempt > 0 as has_run
          from unnest($1::bigint[], $2::int[]) as given (id, day)
         cross join lateral (
                select tenant_id, finished_at, attempt
                  from ends
                 where ends.task_id = given.id
                offset 0
               ) as ended
         cross join lateral (
                select idempotency_key, graph_id from tasks where tasks.id = given.id offset 0
               ) as task
         where day_of(ended.finished_at) < given.day
           and given.id not in (select id from needed)
           -- One lookup per task: a join could scan the whole table.
           and not exists (select 1 from live l where l.id = given.id offset 0)
           and not exists (select 1 from ended_upstreams u where u.task_id = given.id offset 0)
           and not exists (
                select 1
                  from attempts a
                 where a.task_id = given.id
                   -- The `+ 0` rules out an index scan of all attempts that are not booked.
                   and a.entry + 0 > (select booked_to from usage_watermark)
                offset 0
               )
     ),
     noted as (
        update submissions s
           set ended_at = old.finished_at
          from old
         cross join lateral (
                select ctid
                  from submissions
                 where tenant_id = old.tenant_id
                   and key = old.idempotency_key
                   and task_id = old.id
                offset 0
               ) as known
         where s.ctid = known.ctid
     ),
     specs as (
        delete from former_specs where task_id = any(array(select id from old))
     ),
     parts as (
        delete from stages where task_id = any(array(select id from old))
     ),
     young as (
        delete from children where task_id = any(array(select id from old))
     ),
     letters as (
        delete from dead_letters where task_id = any(array(select id from old))
     ),
     steps as (
        delete from events
         where task_id = any(array(select id from old))
           and task_id between $3 and $4::bigint
     ),
     tries as (
        delete from attempts
         where task_id = any(array(select id from old))
           and task_id between $3 and $4
     ),
     waited as (
        delete from edges
         where dependant_id = any(array(select id from old))
           and dependant_id between $3 and $4
     ),
     closed as (
        delete from ends
         where task_id = any(array(select id from old))
           and task_id between $3 and $4
     ),
     asked as (
        delete from tasks
         where id = any(array(select id from old))
           and id between $3 and $4
     )
select id, graph_id, has_run
  from old

-- name: drop_graphs_of
-- Delete those of the given graphs that have no stored task left.
--   $1 ids
delete from graphs g
 where g.id = any($1::bigint[])
   and not exists (select 1 from tasks t where t.id = any(g.task_ids))

-- name: drop_submissions
-- Delete idempotency keys of tasks that ended more than $1 ago. A key is never deleted while its
-- task, or any task of its batch, is live, nor before the time of its end is known.
--   $1 how long, $2 how many
delete from submissions
 where (tenant_id, key) in (
        select s.tenant_id, s.key
          from submissions s
          left join ends e on e.task_id = s.task_id
         where s.created_at < duly.now() - $1::interval
           and coalesce(e.finished_at, s.ended_at) < duly.now() - $1::interval
           and not exists (
                select 1 from live l where l.id = s.task_id or l.id = any(s.batch)
               )
         order by s.created_at
         limit $2
       )

-- name: note_ends
-- Set the end of idempotency keys to now if their task is gone and its end is unknown: keys of
-- batches whose first task was deleted.
--   $1 how old a key is at least, $2 how many
update submissions
   set ended_at = duly.now()
 where (tenant_id, key) in (
        select s.tenant_id, s.key
          from submissions s
          left join ends e on e.task_id = s.task_id
         where s.created_at < duly.now() - $1::interval
           and s.ended_at is null
           and e.task_id is null
           and not exists (
                select 1 from live l where l.id = s.task_id or l.id = any(s.batch)
               )
         order by s.created_at
         limit $2
       )

-- name: drop_tokens
delete from node_tokens
 where expires_at < duly.now()

-- name: drop_incarnations
-- Delete incarnations that ended long ago; attempts keep their ids.
--   $1 how long ago
delete from incarnations
 where ended_at < duly.now() - $1::interval
   and not exists (select 1 from live where incarnation_id = incarnations.id)

-- name: drop_graphs
-- Delete graphs that were submitted long ago and have no stored task left.
--   $1 how long ago, $2 how many
delete from graphs
 where id in (
        select g.id
          from graphs g
         where g.id < first_id_of(day_of(duly.now() - $1::interval))
           and not exists (select 1 from tasks t where t.id = any(g.task_ids))
         limit $2
       )
