-- serves: 0003

-- Books of what was used, by day, kept long after the attempts that they were made from.

-- Every attempt gets a number when its end is recorded, and the books are written in the order
-- of these numbers. Numbers are drawn before the commit, so a lower one may appear after a
-- higher one: what is below a number is complete once every transaction has ended that began
-- before the number was read. For that to be decided by transaction ids, whoever draws a number
-- has one already, which is what the odd argument sees to. Attempts that ended before this step
-- have 0 and are in no books.
create sequence entries;
alter table attempts add column entry bigint not null default 0;
alter table attempts alter column entry set default
    nextval(case when pg_current_xact_id() is not null then 'duly.entries'::regclass end);
create index attempts_by_entry on attempts (entry);

-- Up to which number attempts are in the books; it moves in the transaction that books them.
create table books (
    is_only    boolean primary key default true check (is_only),
    booked_to  bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

insert into books (booked_to) values (0);

-- What was used on a day (UTC, of the end of the attempt), under which prices. Amounts are
-- whole microseconds, times the thousandths of a core or the mebibytes that were granted, so
-- that sums do not depend on their order. `above_entry` and `last_entry`
-- enclose the numbers of the attempts that a row was made from, and `first_task_id` is the lowest
-- of their tasks: with these the audit can count them again, and knows whether all are still there.
create table usage (
    tenant_id             int not null,
    day                   date not null,
    user_id               int,
    tier                  text,
    urgency               text not null,
    factor                numeric not null,
    price_per_task        numeric not null,
    price_per_cpu_hour    numeric not null,
    price_per_gib_hour    numeric not null,
    tasks                 bigint not null,
    attempts              bigint not null,
    cpu_us                numeric not null,
    granted_cpu_milli_us  numeric not null,
    granted_memory_mb_us  numeric not null,
    above_entry           bigint not null,
    last_entry            bigint not null,
    first_task_id         bigint not null,
    constraint usage_one_of_a_kind unique nulls not distinct (
        tenant_id, day, user_id, tier, urgency, factor,
        price_per_task, price_per_cpu_hour, price_per_gib_hour
    )
) with (fillfactor = 70);

create index usage_by_day on usage (day);

-- What a task asked for up to an attempt, where it was changed before the next one: what an
-- attempt was given is not to be told by what its task asks for today.
create table former_specs (
    task_id          bigint not null,
    attempt          int not null,
    tenant_id        int not null,
    shape_id         int not null,
    tier             text,
    delay_tolerance  interval not null,
    primary key (task_id, attempt)
);

-- Changed twice between two attempts, the first change is the one that tells.
create function keep_former_spec() returns trigger
    language plpgsql
    as $$
begin
    insert into duly.former_specs (task_id, attempt, tenant_id, shape_id, tier, delay_tolerance)
    select old.id, l.attempt, old.tenant_id, old.shape_id, old.tier, old.delay_tolerance
      from duly.live l
     where l.id = old.id
       and l.attempt > 0
        on conflict (task_id, attempt) do nothing;
    return null;
end
$$;

create trigger tasks_keep_former_specs
    after update on tasks
    for each row
    when ((old.shape_id, old.tier, old.delay_tolerance)
          is distinct from (new.shape_id, new.tier, new.delay_tolerance))
    execute function keep_former_spec();

-- Add up the attempts with numbers above p_above and up to p_up_to, of some tenants or of all
-- (null). `band` is the last of the p_bounds that the delay tolerance has reached. Attempts with an
-- outcome in p_free were given nothing that is paid for; the time they took is counted as cpu_us
-- alone. Stable, so that it sees what the statement sees that calls it.
create function count_usage(
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
    select c.tenant_id, c.day, c.user_id, c.tier, c.band,
           sum(c.tasks)::bigint, sum(c.attempts)::bigint, sum(c.cpu_us),
           sum(c.ran_us * coalesce((s.needs ->> 'cpu_milli')::bigint, 0)),
           sum(c.ran_us * coalesce((s.needs ->> 'memory_mb')::bigint, 0)),
           min(c.first_task_id)
      from counted c
      left join lateral (select shapes.needs from duly.shapes where shapes.id = c.shape_id offset 0)
           as s on true
     group by 1, 2, 3, 4, 5
$$;

-- Drop a day of history. Tasks that are still live survive it, and so do those of which an
-- attempt is in no books yet, with all that belongs to them. Which these are is looked at when
-- the day can no longer be written to.
create or replace procedure drop_day(day int)
    language plpgsql
    as $$
declare
    parent text;
begin
    foreach parent in array array['tasks', 'attempts', 'ends', 'events'] loop
        execute format('alter table duly.%I detach partition duly.%I', parent, parent || '_' || day);
    end loop;
    create temporary table survivors on commit drop as
        select id from duly.live
         where id >= duly.first_id_of(day) and id < duly.first_id_of(day + 1);
    execute format(
        'insert into survivors select task_id from duly.%I where entry > '
        '(select booked_to from duly.books)',
        'attempts_' || day
    );
    delete from duly.dead_letters
     where task_id >= duly.first_id_of(day) and task_id < duly.first_id_of(day + 1);
    delete from duly.former_specs
     where task_id >= duly.first_id_of(day) and task_id < duly.first_id_of(day + 1)
       and task_id not in (select id from survivors);
    foreach parent in array array['tasks', 'attempts', 'ends', 'events'] loop
        execute format(
            'insert into duly.%I overriding system value select * from duly.%I where %I in (select id from survivors)',
            parent, parent || '_' || day, case parent when 'tasks' then 'id' else 'task_id' end
        );
        execute format('drop table duly.%I', parent || '_' || day);
    end loop;
    drop table survivors;
end
$$;

call keep_apart('usage');
call keep_apart('former_specs');
