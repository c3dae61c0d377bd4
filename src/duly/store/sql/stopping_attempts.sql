-- name: remove
-- Remove the attempts that their node reports as ended; returns those that were there.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens
delete from stopping_attempts
 using unnest($2::bigint[], $3::int[], $4::bigint[]) as report (task_id, attempt, token)
 where stopping_attempts.token = report.token
   and stopping_attempts.token = any($4)
   and stopping_attempts.task_id = report.task_id
   and stopping_attempts.attempt = report.attempt
   and stopping_attempts.node_id = $1
returning stopping_attempts.token

-- name: remove_orphans
-- Remove the attempts of incarnations that have ended: an agent ends its attempts before its lease
-- is over, and before it joins again.
delete from stopping_attempts
 where token = any(array(
        select s.token
          from stopping_attempts s
         cross join lateral (
                select
                  from incarnations i
                 where i.id = s.incarnation_id
                   and i.ended_at is not null
                offset 0
               ) as over
       ))
