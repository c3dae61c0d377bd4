-- serves: 0003

-- What nodes have told of attempts that have been running for a while: when they began and what
-- they have used by then. It is all that is known if the node is lost. Short attempts never have
-- any of it, so for most rows it is null and takes no room. None of it is indexed: to note it is
-- an update in place (HOT). What an earlier attempt has left here counts for nothing: it is read
-- only under the token that it was noted with.
alter table live
    add column measured_token  bigint,
    add column running_since   timestamptz,
    add column cpu_seconds     real,
    add column peak_memory_mb  real;

-- As before, but for attempts whose usage is not known: they count as having used no cpu.
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
                   coalesce(
                       sum((least(coalesce(a.cpu_seconds, 0)::float8, 1e12) * 1e6)::bigint), 0
                   ) as cpu_us,
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
