-- Only a running row has a token, so `status` need not be asked; asked for, it would let the
-- index of all running rows be walked.

-- name: register
-- Keep the digest of the key of an attempt, if that is still this node's to run.
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

-- name: is_good
-- Say whether a key speaks for an attempt that runs, on an incarnation that is alive.
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

-- name: say
-- Keep how far an attempt has come, if the key still speaks for it: it is asked again here,
-- because the attempt may have ended since the caller was let in.
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
