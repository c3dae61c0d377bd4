-- name: take_number
-- Assign a server the lowest number that has been unused for a while, and return it with the second
-- above which the server may mint ids.
--   $1 host name, $2 incarnation, $3 version, $4 how long a silent server keeps its number,
--   $5 address, $6 pid
with clock as materialized (select duly.now() as now),
     numbers as (
        select candidate::smallint as number
          from generate_series(0, 255) as candidate
          left join servers on servers.number = candidate
         cross join clock
         where servers.number is null
            or servers.heartbeat_at < clock.now - $4::interval
         order by candidate
         limit 1
     )
insert into servers (
    number, name, incarnation, version, started_at, heartbeat_at, high_water, address, pid
)
select number, $1, $2, $3, now, now, 0, $5, $6
  from numbers, clock
    on conflict (number) do update
   set name = excluded.name,
       incarnation = excluded.incarnation,
       version = excluded.version,
       started_at = excluded.started_at,
       heartbeat_at = excluded.heartbeat_at,
       address = excluded.address,
       pid = excluded.pid
 where servers.heartbeat_at < excluded.heartbeat_at - $4::interval
returning number, high_water

-- name: renew_number
-- Renew a server's number and raise its high-water mark. Returns no row if the number has passed to
-- another server: the caller must not mint ids under it any more.
--   $1 number, $2 incarnation, $3 high_water
update servers
   set heartbeat_at = duly.now(),
       high_water = greatest(high_water, $3)
 where number = $1
   and incarnation = $2
returning duly.now() as now, high_water

-- name: release_number
-- Release a number at a clean stop, and lower its high-water mark to what was actually minted.
--   $1 number, $2 incarnation, $3 the last second that ids were minted in
update servers
   set heartbeat_at = '-infinity',
       high_water = $3
 where number = $1
   and incarnation = $2

-- name: ensure_term
-- Insert the row of a duty if there is none: term 0, already expired.
--   $1 duty
insert into terms (duty, term, server, renewed_at, expires_at)
values ($1, 0, 0, '-infinity', '-infinity')
    on conflict (duty) do nothing

-- name: renew_term
-- Renew a term. Only non-key columns change, so it does not wait for the duty's transactions.
--   $1 duty, $2 term, $3 server, $4 ttl
update terms
   set renewed_at = duly.now(),
       expires_at = duly.now() + $4::interval
 where duty = $1
   and term = $2
   and server = $3
returning term

-- name: lock_term
-- If the current term has expired, wait for its open transactions, and block new ones. A term that
-- has not expired is not locked: its transactions must not wait for candidates.
--   $1 duty
select term
  from terms
 where duty = $1
   and expires_at <= duly.now()
   for update

-- name: begin_term
-- Begin the next term; the row is locked by lock_term.
--   $1 duty, $2 server, $3 ttl
update terms
   set term = term + 1,
       server = $2,
       renewed_at = duly.now(),
       expires_at = duly.now() + $3::interval
 where duty = $1
returning term

-- name: resign_term
-- End a term at a clean stop, so that another server need not wait for it to expire.
--   $1 duty, $2 term, $3 server
update terms
   set expires_at = '-infinity'
 where duty = $1
   and term = $2
   and server = $3

-- name: hold_term
-- Hold a term until the end of the transaction: no server can take over while this lock is held.
--   $1 duty, $2 term, $3 server
select 1
  from terms
 where duty = $1
   and term = $2
   and server = $3
   for key share

-- name: read_peak
-- Return the kinds of resources at peak, each with the time since when.
--   $1 duty
select peak
  from terms
 where duty = $1

-- name: store_peak
-- Store the peak state of the leader. Only a non-key column changes, so it does not wait for the
-- duty's transactions.
--   $1 duty, $2 term, $3 server, $4 peak
update terms
   set peak = $4
 where duty = $1
   and term = $2
   and server = $3
