-- name: notify
-- Send a message to every listening server; it is delivered at the commit.
--   $1 channel, $2 text
select pg_notify($1, $2)

-- name: has_peers
-- Return whether more than one server has sent a heartbeat recently.
--   $1 interval
select count(*) > 1
  from servers
 where heartbeat_at > duly.now() - $1::interval
