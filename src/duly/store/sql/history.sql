-- name: ensure_days
-- Make the partitions from yesterday to a week ahead.
call ensure_days(day_of(duly.now()) - 1, day_of(duly.now()) + 8)

-- name: read_days
-- Return the days that have a partition and lie before $1, oldest first.
select day
  from (select substring(c.relname from '^tasks_(\d+)$')::int as day
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'duly.tasks'::regclass) as partitions
 where day < day_of(duly.now() - $1::interval)
 order by day

-- name: drop_day
call drop_day($1)

-- name: read_survivors
-- Return the live tasks of day $1 and of those before it: their history outlives its day.
select id
  from live
 where id < first_id_of($1 + 1)

-- name: drop_rest
-- Forget tasks that outlived their day and ended longer ago than $1, at most $2 of them. Those
-- of which an attempt is in no books yet are kept until it is.
with old as (
        select task_id
          from ends_rest
         where finished_at < duly.now() - $1::interval
           and not exists (
                select 1
                  from attempts_rest a
                 where a.task_id = ends_rest.task_id
                   and a.entry > (select booked_to from books)
               )
         limit $2
     ),
     specs as (delete from former_specs using old where former_specs.task_id = old.task_id),
     letters as (delete from dead_letters using old where dead_letters.task_id = old.task_id),
     steps as (delete from events_rest using old where events_rest.task_id = old.task_id),
     tries as (delete from attempts_rest using old where attempts_rest.task_id = old.task_id),
     asked as (delete from tasks_rest using old where tasks_rest.id = old.task_id),
     waited as (delete from edges_rest using old where edges_rest.dependant_id = old.task_id)
delete from ends_rest
 using old
 where ends_rest.task_id = old.task_id

-- name: drop_submissions
-- Forget idempotency keys of tasks that ended, or were forgotten, longer ago than $1. A key
-- is never forgotten while its task, or any task of its batch, is live.
--   $1 how long, $2 how many
delete from submissions
 where (tenant_id, key) in (
        select s.tenant_id, s.key
          from submissions s
          left join ends e on e.task_id = s.task_id
         where s.created_at < duly.now() - $1::interval
           and coalesce(e.finished_at, '-infinity') < duly.now() - $1::interval
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
-- Forget incarnations that ended longer ago than $1; attempts remember their ids.
delete from incarnations
 where ended_at < duly.now() - $1::interval
   and not exists (select 1 from live where incarnation_id = incarnations.id)

-- name: drop_graphs
-- Forget graphs that were submitted longer ago than $1 and of which no task is known any more,
-- at most $2 of them.
delete from graphs
 where id in (
        select g.id
          from graphs g
         where g.id < first_id_of(day_of(duly.now() - $1::interval))
           and not exists (select 1 from tasks t where t.id = any(g.task_ids))
         limit $2
       )
