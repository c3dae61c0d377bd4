-- serves: 0003

-- What a plan grants. Null is no limit. `tasks_per_hour` and `burst` come together: a bucket
-- of `burst` tokens that fills at that rate. `queues` and `tiers` name what may be asked for.
alter table plans
    add column price_class          text not null default 'standard',
    add column price_per_task       numeric not null default 0 check (price_per_task >= 0),
    add column price_per_cpu_hour   numeric not null default 0 check (price_per_cpu_hour >= 0),
    add column price_per_gib_hour   numeric not null default 0 check (price_per_gib_hour >= 0),
    add column tasks_per_hour       bigint check (tasks_per_hour > 0),
    add column burst                bigint check (burst > 0),
    add column max_running          int check (max_running > 0),
    add column max_resources        jsonb,
    add column max_waiting          int check (max_waiting > 0),
    add column max_schedules        int check (max_schedules >= 0),
    add column tiers                text[],
    add column queues               text[],
    add column max_delay_tolerance  interval,
    add column tolerances           jsonb not null default '{}',
    add column retention            interval,
    add column max_log_bytes        bigint check (max_log_bytes >= 0),
    add column max_result_bytes     bigint check (max_result_bytes >= 0),
    add column max_artifact_bytes   bigint check (max_artifact_bytes >= 0),
    add column created_at           timestamptz not null default duly.now(),
    add constraint plans_rate_has_a_burst check ((tasks_per_hour is null) = (burst is null));

insert into plans (
        name, price_class, price_per_task, price_per_cpu_hour, price_per_gib_hour,
        delay_tolerance, max_delay_tolerance, execution_cap, max_execution_cap, weight,
        tasks_per_hour, burst, max_running, max_resources, max_waiting, max_schedules,
        tiers, queues, retention, max_log_bytes, max_result_bytes, max_artifact_bytes
       )
values ('free', 'free', 0, 0, 0,
        '1 hour', '7 days', '10 minutes', '1 hour', 1,
        100, 50, 2, '{"cpu_milli": 2000, "memory_mb": 2048}', 1000, 5,
        '{basic}', '{periodic,delayable,off_peak}', '7 days', 1000000, 65536, 100000000),
       ('standard', 'standard', 0.00001, 0.04, 0.005,
        '5 minutes', '30 days', '1 hour', '24 hours', 2,
        10000, 1000, 50, '{"cpu_milli": 50000, "memory_mb": 102400}', 100000, 100,
        '{basic,regular}', null, '30 days', 10000000, 1000000, 1000000000),
       ('business', 'business', 0.00001, 0.04, 0.005,
        '5 minutes', null, '24 hours', '7 days', 4,
        200000, 20000, 500, null, 1000000, 1000,
        null, null, '30 days', 10000000, 1000000, 10000000000)
    on conflict (name) do nothing;

-- A tenant that is suspended may look and nothing else, and nothing of it starts. One that was
-- removed keeps its row, because history names it; its name is not given again.
alter table tenants
    add column suspended_at  timestamptz,
    add column removed_at    timestamptz;

-- The password (argon2) is for pages; `scopes` is what whoever logs in may do.
alter table users
    add column password_hash  text,
    add column scopes         text[] not null default '{submit,read,manage}',
    add column removed_at     timestamptz;

-- A key belongs to a user or to a service, which is only a name.
alter table keys
    add column name        text,
    add column service     text,
    add column created_by  text,
    add constraint keys_have_one_holder check (user_id is null or service is null);

create index keys_by_tenant on keys (tenant_id, id);
create index keys_by_prefix on keys (prefix);

-- What a name of a tier stands for: for everybody (no tenant), or for one tenant.
create table tiers (
    tenant_id   int references tenants,
    name        text not null,
    resources   jsonb not null,
    created_at  timestamptz not null default duly.now(),
    constraint tiers_one_of_a_name unique nulls not distinct (tenant_id, name)
);

-- The tokens of a tenant's rate limit, as they were at `filled_at`. Charged in the transaction
-- that stores the tasks, under the row's lock: exact over any number of servers.
create table buckets (
    tenant_id  int primary key references tenants,
    tokens     double precision not null,
    filled_at  timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Who did what, for ever. `tenant_id` is whom it concerns, the actor may be an administrator.
create table audit_log (
    id         bigint generated always as identity primary key,
    at         timestamptz not null default duly.now(),
    tenant_id  int,
    actor      text not null,
    action     text not null,
    target     text not null,
    details    jsonb not null default '{}'
);

create index audit_log_by_tenant on audit_log (tenant_id, id);

create function refuse_change() returns trigger
    language plpgsql
    as $$
begin
    raise exception 'the audit log is only added to';
end
$$;

create trigger audit_log_is_only_added_to
    before update or delete or truncate on audit_log
    for each statement execute function refuse_change();

-- A tenant and all that its plan grants, in one row.
create view tenants_with_plans as
select t.id as tenant_id, t.name as tenant, t.suspended_at, t.removed_at,
       p.name as plan, p.delay_tolerance, p.max_delay_tolerance, p.tolerances,
       p.execution_cap, p.max_execution_cap, p.weight,
       p.price_class, p.price_per_task, p.price_per_cpu_hour, p.price_per_gib_hour,
       p.tasks_per_hour, p.burst, p.max_running, p.max_resources, p.max_waiting,
       p.max_schedules, p.tiers, p.queues, p.retention,
       p.max_log_bytes, p.max_result_bytes, p.max_artifact_bytes
  from tenants t
  join plans p on p.name = t.plan;
