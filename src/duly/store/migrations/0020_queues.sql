-- serves: 0003

-- The queue in which tasks of a shape wait: as asked for, or `periodic` for what a schedule has
-- produced. Null is `delayable`. It is part of the shape, so that a line has one queue.
alter table shapes
    add column queue  text check (queue in ('urgent', 'periodic', 'off_peak'));

-- A plan says which queues may be asked for. The others are not asked for: they follow.
update plans
   set queues = array(
        select name
          from unnest(queues) with ordinality as given (name, place)
         where name in ('urgent', 'off_peak')
         order by place
       )
 where queues is not null;

-- As before, but the queue counts, too: who asks for `urgent` pays for it, however long the task
-- could wait; who lets it run `off_peak` is one band cheaper than by the delay tolerance alone,
-- unless that is in the first band, which says that it cannot wait.
create or replace function count_usage(
    p_above bigint, p_up_to bigint, p_tenants int[], p_bounds interval[], p_free outcome[]
)
    returns table (
        tenant_id int, day date, user_id int, tier text, band int, tasks bigint,
        attempts bigint, cpu_us numeric, granted_cpu_milli_us numeric,
        granted_memory_mb_us numeric, first_task_id bigint
    )
    language sql stable
    as $$
    with counted as materialized (
            select t.tenant_id, (a.finished_at at time zone 'UTC')::date as day, t.user_id,
                   case when f.task_id is null then t.tier else f.tier end as tier,
                   greatest(
                       width_bucket(coalesce(f.delay_tolerance, t.delay_tolerance), p_bounds), 1
                   ) as band,
                   coalesce(f.shape_id, t.shape_id) as shape_id,
                   count(*) filter (where a.attempt = 1) as tasks,
                   count(*) as attempts,
                   coalesce(sum((least(a.cpu_seconds::float8, 1e12) * 1e6)::bigint), 0) as cpu_us,
                   coalesce(
                       sum((date_part('epoch', a.finished_at - a.started_at) * 1e6)::bigint)
                           filter (where a.outcome <> all(p_free)),
                       0
                   ) as ran_us,
                   min(a.task_id) as first_task_id
              from duly.attempts a
             cross join lateral (
                    select tasks.tenant_id, tasks.user_id, tasks.tier, tasks.shape_id,
                           tasks.delay_tolerance
                      from duly.tasks
                     where tasks.id = a.task_id
                    offset 0
                   ) as t
              left join lateral (
                    select former_specs.task_id, former_specs.tier, former_specs.shape_id,
                           former_specs.delay_tolerance
                      from duly.former_specs
                     where former_specs.task_id = a.task_id
                       and former_specs.attempt >= a.attempt
                     order by former_specs.attempt
                     limit 1
                   ) as f on true
             where a.entry > p_above
               and a.entry <= p_up_to
               and (p_tenants is null or t.tenant_id = any(p_tenants))
             group by 1, 2, 3, 4, 5, 6
         )
    select c.tenant_id, c.day, c.user_id, c.tier,
           case
               when s.queue = 'urgent' then 1
               when s.queue = 'off_peak' and c.band > 1
               then least(c.band + 1, cardinality(p_bounds))
               else c.band
           end,
           sum(c.tasks)::bigint, sum(c.attempts)::bigint, sum(c.cpu_us),
           sum(c.ran_us * coalesce((s.needs ->> 'cpu_milli')::bigint, 0)),
           sum(c.ran_us * coalesce((s.needs ->> 'memory_mb')::bigint, 0)),
           min(c.first_task_id)
      from counted c
      left join lateral (
            select shapes.needs, shapes.queue
              from duly.shapes
             where shapes.id = c.shape_id
            offset 0
           ) as s on true
     group by 1, 2, 3, 4, 5
$$;
