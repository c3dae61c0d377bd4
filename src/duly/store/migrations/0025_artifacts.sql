-- serves: 0003

-- Bundles that tenants have uploaded, by the SHA-256 of their bytes. Each tenant has its own,
-- also of the same bytes. `blob` is the name of the bytes in the object store: a new one for
-- every upload, so that whoever deletes old bytes never deletes those that have just come.
create table artifacts (
    id            bigint primary key,
    tenant_id     int not null references tenants,
    sha256        bytea not null check (octet_length(sha256) = 32),
    bytes         bigint not null check (bytes >= 0),
    blob          bigint not null,
    created_at    timestamptz not null,
    last_used_at  timestamptz not null
);

create unique index artifacts_by_hash on artifacts (tenant_id, sha256) include (bytes);
create unique index artifacts_by_blob on artifacts (blob);
create index artifacts_by_use on artifacts (last_used_at);

-- Who needs an artifact: a task or a schedule, whose ids are never the same. It counts for as
-- long as there is a live row, or a schedule, of that id; the duty takes away what does not
-- count any more, so that the end of a task costs nothing.
create table artifact_uses (
    artifact_id  bigint not null references artifacts deferrable initially deferred,
    used_by      bigint not null,
    tenant_id    int not null,
    primary key (artifact_id, used_by)
);

create index artifact_uses_by_user on artifact_uses (used_by);

call keep_apart('artifacts');
call keep_apart('artifact_uses');

-- Say whether a task or a schedule still needs what it uses.
create function needs_artifact(p_used_by bigint) returns boolean
    language sql stable
    as $$
    select exists (select 1 from duly.live l where l.id = p_used_by)
        or exists (select 1 from duly.schedules s where s.id = p_used_by)
$$;

-- The bytes of all artifacts that a tenant may have.
alter table plans add column artifact_bytes bigint check (artifact_bytes >= 0);

update plans
   set artifact_bytes = case name
        when 'free' then 1000000000
        when 'standard' then 20000000000
        when 'business' then 200000000000
       end
 where name in ('free', 'standard', 'business');

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
       p.artifact_bytes
  from tenants t
  join plans p on p.name = t.plan;
