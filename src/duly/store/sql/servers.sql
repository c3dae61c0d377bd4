-- name: take_number
-- Give a server the lowest number that nobody has used for a while, and return it with
-- the second above which it may mint ids.
--   $1 name, $2 incarnation, $3 version, $4 how long a silent server keeps its number
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
insert into servers (number, name, incarnation, version, started_at, heartbeat_at, high_water)
select number, $1, $2, $3, now, now, 0
  from numbers, clock
    on conflict (number) do update
   set name = excluded.name,
       incarnation = excluded.incarnation,
       version = excluded.version,
       started_at = excluded.started_at,
       heartbeat_at = excluded.heartbeat_at
 where servers.heartbeat_at < excluded.heartbeat_at - $4::interval
returning number, high_water

-- name: renew_number
-- Renew a server's number and raise its high-water mark. No row comes back when the
-- number has passed to another: then it must mint nothing more under it.
--   $1 number, $2 incarnation, $3 high_water
update servers
   set heartbeat_at = duly.now(),
       high_water = greatest(high_water, $3)
 where number = $1
   and incarnation = $2
returning duly.now() as now, high_water

-- name: leave_number
-- Let go of a number at a clean stop. The mark comes down to what was really minted.
--   $1 number, $2 incarnation, $3 the last second that ids were minted in
update servers
   set heartbeat_at = '-infinity',
       high_water = $3
 where number = $1
   and incarnation = $2

-- name: ensure_term
-- Make the row of a duty if there is none: term 0, already over.
--   $1 duty
insert into terms (duty, term, server, renewed_at, expires_at)
values ($1, 0, 0, '-infinity', '-infinity')
    on conflict (duty) do nothing

-- name: renew_term
-- Renew a term. Non-key columns only, so it does not wait for the duty's transactions.
--   $1 duty, $2 term, $3 server, $4 ttl
update terms
   set renewed_at = duly.now(),
       expires_at = duly.now() + $4::interval
 where duty = $1
   and term = $2
   and server = $3
returning term

-- name: lock_term
-- If the current term has run out, wait until nothing of it is open, and keep it so. One that
-- has not is left alone: its transactions must not wait for those who would like to lead.
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
-- End a term at a clean stop, so that another server need not wait for it to run out.
--   $1 duty, $2 term, $3 server
update terms
   set expires_at = '-infinity'
 where duty = $1
   and term = $2
   and server = $3

-- name: hold_term
-- Hold a term until the end of this transaction: while this lock is held nobody takes over.
--   $1 duty, $2 term, $3 server
select 1
  from terms
 where duty = $1
   and term = $2
   and server = $3
   for key share
