-- name: take
-- Take a try at the password of a name, if it has one left: then a row comes back.
--   $1 name, $2 after how long one try comes back, $3 after how long all of them do
insert into guesses as g (name, full_at)
values ($1, duly.now() + $2::interval)
on conflict (name) do update
   set full_at = greatest(g.full_at, duly.now()) + $2::interval
 where g.full_at + $2::interval <= duly.now() + $3::interval
returning true

-- name: wait
-- Return how long it is until a name has a try again.
--   $1 name, $2 after how long one try comes back, $3 after how long all of them do
select full_at + $2::interval - $3::interval - duly.now()
  from guesses
 where name = $1

-- name: give_back
-- Give back the try of whoever had the right password.
--   $1 name, $2 after how long one try comes back
update guesses
   set full_at = full_at - $2::interval
 where name = $1

-- name: forget
-- Drop names that have all of their tries, a few at a time.
delete from guesses
 where name in (
        select name
          from guesses
         where full_at <= duly.now()
         order by full_at
         limit 10
           for update skip locked
       )
