-- name: lock
-- Exclude other servers that check or replace the store. A lock of the session, not of a transaction:
-- it is held while a remote store responds, and a transaction must not idle for that long.
--   $1 key
select pg_advisory_lock($1::bigint)

-- name: unlock
-- Release the lock.
--   $1 key
select pg_advisory_unlock($1::bigint)

-- name: read
-- Return the identity of the store, and who registered it.
select id, registered_by from object_store

-- name: register
-- Record that a store carries the id.
--   $1 id, $2 registered_by
update object_store
   set id = $1,
       registered_at = duly.now(),
       registered_by = $2

-- name: live_servers
-- Return the servers that have sent a heartbeat lately.
--   $1 how long a silent server counts as live
select name from servers where heartbeat_at > duly.now() - $1::interval order by number
