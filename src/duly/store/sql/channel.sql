-- name: tell
-- Tell every server that listens; it leaves with the commit.
--   $1 channel, $2 text
select pg_notify($1, $2)

-- name: has_company
-- Say whether there are several servers that have shown themselves lately.
--   $1 how long a silent server counts
select count(*) > 1
  from servers
 where heartbeat_at > duly.now() - $1::interval
