-- name: read_nonempty
-- Return the subqueues with waiting tasks, and the earliest start_by of each. A skip scan of the
-- index: the cost depends on the number of subqueues, not of tasks.
with recursive pairs as (
        (select tenant_id, shape_id, start_by
           from live
          where status = 'waiting'
          order by tenant_id, shape_id, start_by
          limit 1)
        union all
        select next.tenant_id, next.shape_id, next.start_by
          from pairs
         cross join lateral (
                select tenant_id, shape_id, start_by
                  from live
                 where status = 'waiting'
                   and (tenant_id, shape_id) > (pairs.tenant_id, pairs.shape_id)
                 order by tenant_id, shape_id, start_by
                 limit 1
               ) as next
     )
select tenant_id, shape_id, start_by
  from pairs

-- name: read_heads
-- Return the heads of subqueues in rank order. Each subqueue is read from a given position on: a
-- task, which may have gone, or a start_by. Tasks that have gone stay in the index for a while, and
-- as long as an old snapshot is held; not every round should scan them again.
--   $1 tenant ids, $2 shape ids, $3 start_by from which on as seconds, $4 how many of it, if more
--   than one; $5 priority, $6 remaining path, $7 expected run time in seconds and $8 id of the task,
--   if one is known. The last five are empty if that is so of none
select head.id, head.tenant_id, head.shape_id, head.start_by, head.priority,
       head.remaining_path, head.expected_run_time, head.avoid_node_id, head.delay_tolerance,
       head.losses, head.run_time_bound
  from unnest(
        $1::int[], $2::int[], $3::float8[], $4::int[], $5::int[], $6::int[], $7::float8[],
        $8::bigint[]
       ) as pair (tenant_id, shape_id, since, most, priority, remaining_path, run_time, id)
 cross join lateral (
        select id, tenant_id, shape_id, start_by, priority, remaining_path,
               coalesce(expected_run_time, execution_cap) as expected_run_time,
               avoid_node_id, least(delay_tolerance, patience) as delay_tolerance, losses,
               least(execution_cap, run_time_bound) as run_time_bound
          from live
         where status = 'waiting'
           and tenant_id = pair.tenant_id
           and shape_id = pair.shape_id
           and (start_by, -priority, -remaining_path,
                coalesce(expected_run_time, execution_cap), id) >= (
                to_timestamp(pair.since),
                coalesce(-pair.priority, -2147483648),
                coalesce(-pair.remaining_path, -2147483648),
                coalesce(make_interval(secs => pair.run_time), '0'),
                coalesce(pair.id, 0)
               )
         order by tenant_id, shape_id, start_by, -priority, -remaining_path,
                  coalesce(live.expected_run_time, execution_cap), id
         limit coalesce(pair.most, 1)
       ) as head
