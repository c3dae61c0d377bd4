-- serves: 0003

-- What users want done again and again: a task as it was asked for, when, and what to do about
-- fire times that are missed or overlap. `next_run_at` is null when nothing is to come any more;
-- an interval without a start counts from `anchor`.
create table schedules (
    id           bigint primary key,
    tenant_id    int not null references tenants,
    user_id      int references users,
    name         text,
    task         jsonb not null,
    recurrence   jsonb not null,
    anchor       timestamptz not null,
    misfire      text not null check (misfire in ('skip', 'once', 'all')),
    overlap      text not null check (overlap in ('allow', 'skip', 'queue', 'cancel_other')),
    next_run_at  timestamptz,
    paused_at    timestamptz,
    -- Tasks of this schedule that had not ended when it last fired; not kept with `allow`.
    open_tasks   bigint[] not null default '{}',
    created_at   timestamptz not null,
    updated_at   timestamptz not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index schedules_due on schedules (next_run_at) where paused_at is null;
create index schedules_by_tenant on schedules (tenant_id, id);

-- What became of fire times. One row for each that was seen to: its task, or the reason why not;
-- missed ones in a row are one row, `times` of them from `fire_at` to `last_at`. Not partitioned,
-- so that a fire time is unique whatever the day; kept when the schedule is removed, as long as
-- the history of tasks.
create table occurrences (
    schedule_id      bigint not null,
    fire_at          timestamptz not null,
    tenant_id        int not null,
    task_id          bigint,
    scheduling_type  text not null,
    reason           jsonb,
    last_at          timestamptz,
    times            int not null default 1,
    recorded_at      timestamptz not null,
    primary key (schedule_id, fire_at),
    constraint occurrences_run_or_say_why check (task_id is not null or reason is not null)
);

create unique index occurrences_by_task on occurrences (task_id);
create index occurrences_by_age on occurrences (recorded_at);

call keep_apart('schedules');
call keep_apart('occurrences');
