-- name: mark
-- End a live task as somebody outside has decided; returns the incarnation that ran it, or null.
-- No row means that the task is not live.
--   $1 tenant_id, $2 task_id, $3 status, $4 reason, $5 result
select incarnation_id from mark_task($1, $2, $3::status, $4::text::jsonb, $5::text::json)

-- name: read_end
-- Return how a task has ended, and whether by a mark.
--   $1 tenant_id, $2 task_id
select status, coalesce(reason ->> 'code', '') = 'marked' as is_marked
  from ends
 where tenant_id = $1
   and task_id = $2
