-- name: count_waiting
-- Count the waiting tasks of all tenants by the queue they were submitted to and whether they are
-- nearly out of slack, with the time since which the oldest of each is ready. The 100,000 oldest
-- tasks are counted.
--   $1 the slack from which on a task is urgent
select s.queue, counted.is_urgent, count(*) as tasks,
       extract(epoch from duly.now() - min(counted.ready_at))::float8 as oldest_wait
  from (
        select shape_id, ready_at, start_by <= duly.now() + $1::interval as is_urgent
          from live
         where status = 'waiting'
         order by id
         limit 100000
       ) as counted
  join shapes s on s.id = counted.shape_id
 group by s.queue, counted.is_urgent
