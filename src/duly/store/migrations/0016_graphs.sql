-- serves: 0003

-- Tasks that wait for others: an edge for each that a task waits for. An edge goes with its
-- dependant: it is in its day, and survives or is dropped with it.
--
-- `is_counted` says whether the upstream had not ended when the edge was made, so that its end
-- is still to be told to the dependant, and is counted in `live.blocked_by`.
create table edges (
    dependant_id  bigint not null,
    upstream_id   bigint not null,
    tenant_id     int not null,
    condition     text not null check (condition in ('success', 'failure', 'always')),
    is_counted    boolean not null,
    primary key (dependant_id, upstream_id)
) partition by range (dependant_id);

-- The sum hides the dependant from whoever looks for it: on an empty day both indexes seem
-- equally good for that, and the plan is kept when the day has filled.
create index edges_by_upstream on edges (upstream_id, (dependant_id + 0));
create table edges_rest partition of edges default;

-- Tasks that were submitted as a whole. Which they are is kept here: an index of all tasks by
-- their graph would have to be built while everybody waits.
create table graphs (
    id            bigint primary key,
    tenant_id     int not null,
    user_id       int,
    name          text,
    task_ids      bigint[] not null,
    submitted_at  timestamptz not null
);

create index graphs_by_tenant on graphs (tenant_id, id);

alter table tasks
    add column graph_id  bigint,
    add column ref       text;

-- `blocked_by` is how many edges are left of which the end was not told yet. Whoever makes an
-- edge says so on the row of the upstream, under the lock that its end needs: so whoever ends a
-- task knows from the row alone whether anybody waits for it.
alter table live
    add column blocked_by      int not null default 0,
    add column has_dependants  boolean not null default false,
    add constraint live_is_blocked_by_something check (
        blocked_by >= 0
        and (status <> 'blocked' or blocked_by > 0)
        and (blocked_by = 0 or status in ('blocked', 'paused'))
    );

-- Tasks that have ended and whose dependants have not all been told: up to which of them is in
-- `told_to`. The leader tells them, in bounded pieces.
create table ended_upstreams (
    task_id    bigint primary key,
    tenant_id  int not null,
    status     status not null,
    told_to    bigint not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Whichever way a task ends, its live row goes, and its end is there. A dependant may have the
-- lower id of the two, if another server minted it, but it is not an hour older.
create function note_ended_upstream() returns trigger
    language plpgsql
    as $$
begin
    insert into duly.ended_upstreams (task_id, tenant_id, status, told_to)
    select e.task_id, e.tenant_id, e.status, e.task_id - (3600::bigint << 31)
      from duly.ends e
     where e.task_id = old.id
        on conflict (task_id) do nothing;
    return null;
end
$$;

create trigger live_note_ended_upstreams
    after delete on live
    for each row
    when (old.has_dependants)
    execute function note_ended_upstream();

-- Whether the end of an upstream is the one that an edge waits for.
create function is_met(p_condition text, p_status duly.status) returns boolean
    language sql immutable parallel safe
    as $$
    select case p_condition
               when 'success' then p_status = 'done'
               when 'failure' then p_status <> 'done'
               else true
           end
$$;

-- Why a task never runs whose upstream has ended in another way than it waits for.
create function upstream_reason(p_upstream bigint, p_status duly.status) returns jsonb
    language sql immutable parallel safe
    as $$
    select jsonb_build_object(
        'code', case when p_status = 'done' then 'upstream_succeeded' else 'upstream_failed' end,
        'message', format(
            case p_status
                when 'done' then 'Task %s is done, and this one was to run only if it failed.'
                when 'failed' then 'Task %s has failed, and this one needs it to succeed.'
                else 'Task %s was cancelled, and this one needs it to succeed.'
            end, p_upstream
        ),
        'details', jsonb_build_object('upstream', p_upstream::text, 'status', p_status)
    )
$$;

-- End tasks that have not started, each for a reason of its own.
create function end_each_unstarted(p_tasks bigint[], p_status duly.status, p_reasons jsonb[])
    returns table (id bigint)
    language plpgsql
    as $$
declare
    at timestamptz;
begin
    perform 1
       from duly.live l
      where l.id = any(p_tasks)
      order by l.id
        for update;

    at := duly.now();
    return query
    with removed as (
            delete from duly.live l
             using unnest(p_tasks, p_reasons) as given (id, reason)
             where l.id = given.id
               and l.id = any(p_tasks)
               and l.status in ('scheduled', 'blocked', 'waiting', 'paused')
            returning l.*, given.reason as why
         ),
         closed as (
            insert into duly.ends (
                    task_id, tenant_id, status, reason, attempt, failures, losses,
                    ready_at, start_by, finished_at
                   )
            select r.id, r.tenant_id, p_status, r.why, r.attempt, r.failures, r.losses,
                   r.ready_at, r.start_by, at
              from removed r
         ),
         noted as (
            insert into duly.events (task_id, tenant_id, at, kind, details)
            select r.id, r.tenant_id, at, p_status::text, r.why
              from removed r
         ),
         buried as (
            insert into duly.dead_letters (task_id, tenant_id, code, failed_at)
            select r.id, r.tenant_id, r.why ->> 'code', at
              from removed r
             where p_status = 'failed'
         )
    select removed.id from removed;
end
$$;

create or replace function end_unstarted(p_tasks bigint[], p_status duly.status, p_reason jsonb)
    returns table (id bigint)
    language sql
    as $$
    select e.id
      from duly.end_each_unstarted(
            p_tasks, p_status, array_fill(p_reason, array[cardinality(p_tasks)])
           ) as e
$$;

-- Let new tasks depend on tasks that were there before, one edge for each position; both are of
-- the tenant. Returns the upstreams that it does not have: then nothing was done.
--
-- An upstream that is live cannot end before the commit, since its row is locked, and whoever
-- ends it then sees that it has dependants. Of one that is not, the end is there to be seen, by
-- a statement that begins after its row was looked for.
create function attach_edges(
    p_tenant int, p_dependants bigint[], p_upstreams bigint[], p_conditions text[]
)
    returns table (unknown_id bigint)
    language plpgsql
    as $$
declare
    at timestamptz;
    are_live boolean[];
    ends duly.status[];
    doomed bigint[];
    reasons jsonb[];
begin
    select array_agg(held.id is not null order by given.place)
      into are_live
      from (select *
              from unnest(p_upstreams) with ordinality as given (id, place)
             order by id) as given
      left join lateral (
            select l.id
              from duly.live l
             where l.id = given.id
               and l.tenant_id = p_tenant
               for key share
           ) as held on true;

    update duly.live
       set has_dependants = true
     where live.id = any(array(
            select fresh.id
              from (select distinct given.id
                      from unnest(p_upstreams, are_live) as given (id, is_live)
                     where is_live
                     order by 1) as given
             cross join lateral (
                    select l.id
                      from duly.live l
                     where l.id = given.id
                       and not l.has_dependants
                       for no key update
                   ) as fresh
           ));

    select array_agg(ended.status order by given.place)
      into ends
      from unnest(p_upstreams) with ordinality as given (id, place)
      left join lateral (
            select e.status
              from duly.ends e
             where e.task_id = given.id
               and e.tenant_id = p_tenant
            offset 0
           ) as ended on true;

    return query
    select distinct given.id
      from unnest(p_upstreams, are_live, ends) as given (id, is_live, status)
     where not given.is_live
       and given.status is null;
    if found then
        return;
    end if;

    insert into duly.edges (dependant_id, upstream_id, tenant_id, condition, is_counted)
    select given.dependant_id, given.upstream_id, p_tenant, given.condition, given.is_live
      from unnest(p_dependants, p_upstreams, p_conditions, are_live)
           as given (dependant_id, upstream_id, condition, is_live)
        on conflict do nothing;

    select array_agg(given.dependant_id), array_agg(given.reason)
      into doomed, reasons
      from (select distinct on (given.dependant_id)
                   given.dependant_id,
                   duly.upstream_reason(given.upstream_id, given.status) as reason
              from unnest(p_dependants, p_upstreams, p_conditions, are_live, ends)
                   as given (dependant_id, upstream_id, condition, is_live, status)
             where not given.is_live
               and not duly.is_met(given.condition, given.status)
             order by given.dependant_id, given.upstream_id) as given;
    if doomed is not null then
        perform duly.end_each_unstarted(doomed, 'cancelled', reasons);
    end if;

    -- What was stored counts every edge that was asked for. Those to upstreams that had ended do
    -- not count, nor do two of them under different names that turn out to be one.
    at := duly.now();
    update duly.live l
       set (blocked_by, status) = (
            select counted.edges,
                   (case
                        when counted.edges > 0 then 'blocked'
                        when l.ready_at > at then 'scheduled'
                        else 'waiting'
                    end)::duly.status
              from (select count(*)::int as edges
                      from duly.edges e
                     where e.dependant_id = l.id
                       and e.is_counted) as counted
           )
     where l.id = any(array(
            select given.dependant_id
              from unnest(p_dependants, p_upstreams, are_live)
                   as given (dependant_id, upstream_id, is_live)
             group by given.dependant_id
            having not bool_and(given.is_live)
                or count(*) > count(distinct given.upstream_id)
           ));
end
$$;

-- Tell dependants that tasks have ended for which they wait: some may start, some never can and
-- end as well, which their own dependants are told next. At most about p_limit edges are gone
-- through; a row without an id says that there are more. Under a term that is held until the
-- commit, so nobody else does it meanwhile. Dependants are locked in the order of their ids.
create function settle_edges(p_duty text, p_term bigint, p_server smallint, p_limit int)
    returns table (
        id bigint, tenant_id int, shape_id int, status duly.status, start_by timestamptz
    )
    language plpgsql
    as $$
declare
    at timestamptz;
    ended bigint[];
    statuses duly.status[];
    marks bigint[];
    upstreams bigint[];
    dependants bigint[];
    are_met boolean[];
    doomed bigint[];
    reasons jsonb[];
    seen int;
    rest int := p_limit;
begin
    perform 1
       from duly.terms t
      where t.duty = p_duty and t.term = p_term and t.server = p_server
        for key share;
    if not found then
        raise exception 'term % of % is over', p_term, p_duty using errcode = 'DU001';
    end if;

    while rest > 0 loop
        select array_agg(u.task_id), array_agg(u.status), array_agg(u.told_to)
          into ended, statuses, marks
          from (select e.task_id, e.status, e.told_to
                  from duly.ended_upstreams e
                 order by e.task_id
                 limit 100
                   for update) as u;
        if ended is null then
            return;
        end if;

        select array_agg(found.upstream_id), array_agg(found.dependant_id),
               array_agg(found.is_met), count(*)
          into upstreams, dependants, are_met, seen
          from (select u.id as upstream_id, edge.dependant_id,
                       duly.is_met(edge.condition, u.status) as is_met
                  from unnest(ended, statuses, marks) as u (id, status, told_to)
                 cross join lateral (
                        select e.dependant_id, e.condition
                          from duly.edges e
                         where e.upstream_id = u.id
                           and e.dependant_id > u.told_to
                           and e.dependant_id + 0 > u.told_to
                           and e.is_counted
                         order by e.dependant_id + 0
                         limit rest
                       ) as edge
                 order by 1, 2
                 limit rest) as found;

        perform 1
           from duly.live l
          where l.id = any(dependants)
          order by l.id
            for update;

        select array_agg(edge.dependant_id), array_agg(edge.reason)
          into doomed, reasons
          from (select distinct on (edge.dependant_id)
                       edge.dependant_id,
                       duly.upstream_reason(edge.upstream_id, u.status) as reason
                  from unnest(upstreams, dependants, are_met)
                       as edge (upstream_id, dependant_id, is_met)
                  join duly.ended_upstreams u on u.task_id = edge.upstream_id
                 where not edge.is_met
                 order by edge.dependant_id, edge.upstream_id) as edge;
        if doomed is not null then
            return query
            select e.id, null::int, null::int, 'cancelled'::duly.status, null::timestamptz
              from duly.end_each_unstarted(doomed, 'cancelled', reasons) as e;
        end if;

        at := duly.now();
        return query
        with counted as (
                update duly.live l
                   set blocked_by = l.blocked_by - told.edges,
                       ready_at = case
                           when l.blocked_by > told.edges then l.ready_at
                           else greatest(l.ready_at, at)
                       end,
                       start_by = case
                           when l.blocked_by > told.edges then l.start_by
                           else date_trunc('second', greatest(l.ready_at, at) + l.delay_tolerance)
                       end,
                       status = (case
                           when l.blocked_by > told.edges or l.status <> 'blocked'
                           then l.status::text
                           when l.ready_at > at then 'scheduled'
                           else 'waiting'
                       end)::duly.status
                  from (select edge.dependant_id, count(*)::int as edges
                          from unnest(dependants, are_met) as edge (dependant_id, is_met)
                         where edge.is_met
                         group by edge.dependant_id) as told
                 where l.id = told.dependant_id
                   and l.id = any(dependants)
                returning l.id, l.tenant_id, l.shape_id, l.status, l.start_by
             )
        select c.* from counted c where c.status <> 'blocked';

        -- The last one may have more dependants than were gone through.
        update duly.ended_upstreams u
           set told_to = (dependants)[seen]
         where u.task_id = (upstreams)[seen]
           and seen = rest;
        delete from duly.ended_upstreams u
         where u.task_id = any(ended)
           and (seen < rest or u.task_id < (upstreams)[seen]);
        rest := rest - seen - cardinality(ended);
    end loop;

    return query
    select null::bigint, null::int, null::int, null::duly.status, null::timestamptz;
end
$$;

-- Make the partitions of the days first..last that are missing, those of edges too.
create or replace procedure ensure_days(first int, last int)
    language plpgsql
    as $$
declare
    parent text;
    child text;
    key text;
    day int;
begin
    for day in first .. last loop
        foreach parent in array array['tasks', 'attempts', 'ends', 'events', 'edges'] loop
            child := parent || '_' || day;
            if to_regclass(format('duly.%I', child)) is not null then
                continue;
            end if;
            key := case parent when 'tasks' then 'id' when 'edges' then 'dependant_id' else 'task_id' end;
            execute format('lock table duly.%I in access exclusive mode', parent || '_rest');
            execute format(
                'create table duly.%I (like duly.%I including defaults including constraints)',
                child, parent
            );
            execute format(
                'with moved as (delete from duly.%I where %I >= $1 and %I < $2 returning *) '
                'insert into duly.%I select * from moved',
                parent || '_rest', key, key, child
            ) using duly.first_id_of(day), duly.first_id_of(day + 1);
            execute format(
                'alter table duly.%I attach partition duly.%I for values from (%s) to (%s)',
                parent, child, duly.first_id_of(day), duly.first_id_of(day + 1)
            );
        end loop;
    end loop;
end
$$;

-- Drop a day of history. Tasks that are still live survive it, and so do those of which an
-- attempt is in no books yet, with all that belongs to them. Which these are is looked at when
-- the day can no longer be written to. Days from before there were edges have none.
create or replace procedure drop_day(day int)
    language plpgsql
    as $$
declare
    parent text;
    parents text[] := array['tasks', 'attempts', 'ends', 'events'];
begin
    if to_regclass(format('duly.%I', 'edges_' || day)) is not null then
        parents := parents || 'edges'::text;
    end if;
    foreach parent in array parents loop
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
    foreach parent in array parents loop
        execute format(
            'insert into duly.%I overriding system value select * from duly.%I where %I in (select id from survivors)',
            parent, parent || '_' || day,
            case parent when 'tasks' then 'id' when 'edges' then 'dependant_id' else 'task_id' end
        );
        execute format('drop table duly.%I', parent || '_' || day);
    end loop;
    drop table survivors;
end
$$;

call ensure_days(day_of(duly.now()) - 1, day_of(duly.now()) + 8);

call keep_apart('edges');
call keep_apart('graphs');
call keep_apart('ended_upstreams');
