-- name: acquire
-- Take one password attempt from a name's bucket; returns a row if one was left.
--   $1 name, $2 refill time of one attempt, $3 refill time of the whole bucket
insert into login_attempts as g (name, full_at)
values ($1, duly.now() + $2::interval)
on conflict (name) do update
   set full_at = greatest(g.full_at, duly.now()) + $2::interval
 where g.full_at + $2::interval <= duly.now() + $3::interval
returning true

-- name: wait
-- Return how long to wait until a name has an attempt left.
--   $1 name, $2 refill time of one attempt, $3 refill time of the whole bucket
select full_at + $2::interval - $3::interval - duly.now()
  from login_attempts
 where name = $1

-- name: refund
-- Return an attempt to the bucket after a correct password.
--   $1 name, $2 refill time of one attempt
update login_attempts
   set full_at = full_at - $2::interval
 where name = $1

-- name: prune
-- Delete full buckets, a few at a time.
delete from login_attempts
 where name in (
        select name
          from login_attempts
         where full_at <= duly.now()
         order by full_at
         limit 10
           for update skip locked
       )
