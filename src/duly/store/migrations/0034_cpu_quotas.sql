-- serves: 0003

-- Whether tasks get no more cpu than they asked for, even where processors are idle. A task that is
-- submitted takes it along in its payload.
alter table plans add column cpu_quota boolean not null default false;

create or replace view tenants_with_plans with (security_invoker = true) as
select t.id as tenant_id, t.name as tenant, t.suspended_at, t.removed_at,
       p.name as plan, p.delay_tolerance, p.max_delay_tolerance, p.tolerances,
       p.execution_cap, p.max_execution_cap, p.weight,
       p.price_class, p.price_per_task, p.price_per_cpu_hour, p.price_per_gib_hour,
       p.tasks_per_hour, p.burst, p.max_running, p.max_resources, p.max_waiting,
       p.max_schedules, p.tiers, p.queues, p.retention,
       p.max_log_bytes, p.max_result_bytes, p.max_artifact_bytes,
       coalesce((select jsonb_object_agg(name, resources order by created_at, name)
                   from tiers
                  where tenant_id is null), '{}')
       || coalesce((select jsonb_object_agg(name, resources order by created_at, name)
                      from tiers
                     where tenant_id = t.id), '{}') as known_tiers,
       p.artifact_bytes, p.cpu_quota
  from tenants t
  join plans p on p.name = t.plan;
