-- Only a running row has a token, so `status` is not checked: that condition would allow a scan of
-- the index of all running rows.

-- name: register
-- Store the digest of an attempt's key, if the node still holds the attempt.
--   $1 node_id, $2 task_id, $3 attempt, $4 token, $5 SHA-256 of the key
update live
   set attempt_key = $5
 where id = $2
   and attempt = $3
   and token = $4
   and node_id = $1
   and exists (
        select 1 from incarnations i where i.id = live.incarnation_id and i.ended_at is null
       )
returning id

-- name: is_valid
-- Return whether a key belongs to a running attempt on a live incarnation.
--   $1 task_id, $2 attempt, $3 token, $4 SHA-256 of the key
select exists (
        select 1
          from live
         where id = $1
           and attempt = $2
           and token = $3
           and attempt_key = $4
           and exists (
                select 1 from incarnations i where i.id = live.incarnation_id and i.ended_at is null
               )
       )

-- name: record_progress
-- Store the progress of an attempt if its key is still valid: the key is checked again, because the
-- attempt may have ended since the caller was authenticated.
--   $1 task_id, $2 attempt, $3 token, $4 SHA-256 of the key, $5 fraction, $6 text
update live
   set progress = $5,
       progress_text = $6,
       progress_token = token,
       progress_at = duly.now()
 where id = $1
   and attempt = $2
   and token = $3
   and attempt_key = $4
   and exists (
        select 1 from incarnations i where i.id = live.incarnation_id and i.ended_at is null
       )
returning id
