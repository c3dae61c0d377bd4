-- What attempts do beside running: stages that they record, and children that they submit.
-- Only a running row has a token, so `status` is not checked: that condition would allow a scan of
-- the index of all running rows.

-- name: save
-- Record a stage, unless it is there already or would be too much, if the attempt's key is still
-- valid: it is checked again, under a lock that the end of the attempt waits for. Returns whether
-- the attempt runs, the limits of its task, and what was recorded now.
--   $1 task_id, $2 attempt, $3 token, $4 SHA-256 of the key, $5 name, $6 result, $7 most stages,
--   $8 most bytes of all of them, $9 most bytes of one
with held as materialized (
        select l.id, l.tenant_id,
               (select least(coalesce((t.payload ->> 'result_limit')::bigint, $9), $9)
                  from tasks t
                 where t.id = $1) as result_limit
          from live l
         where l.id = $1
           and l.attempt = $2
           and l.token = $3
           and l.attempt_key = $4
           and exists (
                select 1 from incarnations i where i.id = l.incarnation_id and i.ended_at is null
               )
           for key share of l
     ),
     stored as materialized (
        select count(*) as stages, coalesce(sum(octet_length(result)), 0) as bytes
          from stages
         where task_id = $1
     ),
     saved as (
        insert into stages (task_id, name, tenant_id, attempt, result, recorded_at)
        select held.id, $5, held.tenant_id, $2, $6, duly.now()
          from held, stored
         where stored.stages < $7
           and stored.bytes + octet_length($6) <= $8
           and octet_length($6) <= held.result_limit
            on conflict (task_id, name) do nothing
        returning result
     )
select held.result_limit, (select result from saved) as result
  from held

-- name: read_one
--   $1 task_id, $2 name
select result
  from stages
 where task_id = $1
   and name = $2

-- name: read_all
-- Return the stages of a task in the order in which they were recorded.
--   $1 task_id, $2 tenant_id, or null if the task is known to be the caller's
select name, attempt, result, recorded_at
  from stages
 where task_id = $1
   and ($2::int is null or tenant_id = $2)
 order by recorded_at, name

-- name: add_child
-- Link a task to the one whose attempt submits it, if that attempt's key is still valid.
--   $1 task_id of the parent, $2 attempt, $3 token, $4 SHA-256 of the key, $5 id of the child
with held as materialized (
        select l.id, l.tenant_id
          from live l
         where l.id = $1
           and l.attempt = $2
           and l.token = $3
           and l.attempt_key = $4
           and exists (
                select 1 from incarnations i where i.id = l.incarnation_id and i.ended_at is null
               )
           for key share of l
     ),
     linked as (
        insert into children (task_id, parent_id, tenant_id)
        select $5, held.id, held.tenant_id
          from held
            on conflict (task_id) do nothing
     )
select count(*) > 0 as is_held
  from held

-- name: pick_children
-- Return the newest ids of the children of a task.
--   $1 parent, $2 tenant_id or null, $3 below this id, $4 how many
select task_id as id
  from children
 where parent_id = $1
   and ($2::int is null or tenant_id = $2)
   and task_id < $3
 order by parent_id desc, task_id desc
 limit $4

-- name: read_owner
-- Return the tenant and the user of a task, on whose behalf its attempt submits others.
--   $1 task_id
select l.id, t.*, u.id as user_id, u.name as "user"
  from live l
 cross join lateral (
        select tasks.user_id from tasks where tasks.id = l.id offset 0
       ) as task
  join tenants_with_plans t on t.tenant_id = l.tenant_id
  left join users u on u.id = task.user_id
 where l.id = $1
   and t.removed_at is null
