-- name: read_plans
-- Return plans, newest first, and if requested the number of tenants on each.
--   $1 below this id, $2 how many, $3 name, $4 whether to count tenants
select p.id, p.name as plan, p.delay_tolerance, p.max_delay_tolerance, p.tolerances,
       p.execution_cap, p.max_execution_cap, p.weight, p.retention,
       p.price_class, p.price_per_task, p.price_per_cpu_hour, p.price_per_gib_hour,
       p.tasks_per_hour, p.burst, p.max_running, p.max_resources, p.max_waiting,
       p.max_schedules, p.tiers, p.queues, p.max_log_bytes, p.max_result_bytes,
       p.max_artifact_bytes, p.artifact_bytes, p.cpu_quota, p.created_at,
       case
           when $4
           then (select count(*) from tenants t where t.plan = p.name and t.removed_at is null)
       end as tenants
  from plans p
 where p.id < $1
   and ($3::text is null or p.name = $3)
 order by p.id desc
 limit $2

-- name: lock_plan
-- Lock a plan. A tenant that is moving to the plan holds a key share lock on it until its commit,
-- and a later one waits, so a count taken under this lock stays true.
--   $1 name
select name as plan, delay_tolerance, max_delay_tolerance, tolerances,
       execution_cap, max_execution_cap, weight, retention,
       price_class, price_per_task, price_per_cpu_hour, price_per_gib_hour,
       tasks_per_hour, burst, max_running, max_resources, max_waiting,
       max_schedules, tiers, queues, max_log_bytes, max_result_bytes,
       max_artifact_bytes, artifact_bytes, cpu_quota
  from plans
 where name = $1
   for update

-- name: add_plan
-- Insert a plan; returns no row if the name is taken.
--   $1 the plan
insert into plans (
        name, delay_tolerance, max_delay_tolerance, tolerances,
        execution_cap, max_execution_cap, weight, retention,
        price_class, price_per_task, price_per_cpu_hour, price_per_gib_hour,
        tasks_per_hour, burst, max_running, max_resources, max_waiting,
        max_schedules, tiers, queues, max_log_bytes, max_result_bytes,
        max_artifact_bytes, artifact_bytes, cpu_quota
       )
select name, delay_tolerance, max_delay_tolerance, tolerances,
       execution_cap, max_execution_cap, weight, retention,
       price_class, price_per_task, price_per_cpu_hour, price_per_gib_hour,
       tasks_per_hour, burst, max_running, nullif(max_resources, 'null'), max_waiting,
       max_schedules, tiers, queues, max_log_bytes, max_result_bytes,
       max_artifact_bytes, artifact_bytes, cpu_quota
  from jsonb_populate_record(null::plans, $1::jsonb)
    on conflict (name) do nothing
returning id

-- name: change_plan
-- Change a locked plan.
--   $1 the plan
update plans
   set delay_tolerance = given.delay_tolerance,
       max_delay_tolerance = given.max_delay_tolerance,
       tolerances = given.tolerances,
       execution_cap = given.execution_cap,
       max_execution_cap = given.max_execution_cap,
       weight = given.weight,
       retention = given.retention,
       price_class = given.price_class,
       price_per_task = given.price_per_task,
       price_per_cpu_hour = given.price_per_cpu_hour,
       price_per_gib_hour = given.price_per_gib_hour,
       tasks_per_hour = given.tasks_per_hour,
       burst = given.burst,
       max_running = given.max_running,
       max_resources = nullif(given.max_resources, 'null'),
       max_waiting = given.max_waiting,
       max_schedules = given.max_schedules,
       tiers = given.tiers,
       queues = given.queues,
       max_log_bytes = given.max_log_bytes,
       max_result_bytes = given.max_result_bytes,
       max_artifact_bytes = given.max_artifact_bytes,
       artifact_bytes = given.artifact_bytes,
       cpu_quota = given.cpu_quota
  from jsonb_populate_record(null::plans, $1::jsonb) as given
 where plans.name = given.name

-- name: remove_plan
--   $1 name
delete from plans
 where name = $1

-- name: tenants_of_plan
-- Return the tenants on a plan, including removed ones.
--   $1 plan
select name, removed_at is not null as is_removed
  from tenants
 where plan = $1
 order by name
