-- name: count_waiting
-- Count the tasks of a tenant that have not ended and do not run, up to a bound for each kind:
-- those that wait for room, and those that are not ready.
--   $1 tenant_id, $2 bound
select (
        select count(*)
          from (
                select 1 from live where tenant_id = $1 and status = 'waiting' limit $2
               ) as waiting
       ) + (
        select count(*)
          from (
                select 1
                  from live
                 where tenant_id = $1
                   and status in ('scheduled', 'blocked', 'paused')
                 limit $2
               ) as later
       ) as tasks
