-- serves: 0003

-- `is_paused` says that a task is to go on only when it is resumed. One that has not started is
-- `paused` at once. One that runs goes on, and is `paused` if it is to be tried again.
alter table live add column is_paused boolean not null default false;

-- What is to be done to all tasks of a graph. It is written down first, and then done in pieces,
-- each together with how far it has come; so whoever dies in between leaves the rest to the
-- leader. A wish that takes the place of another has an id of its own: who is still at the
-- other finds it gone.
create table graph_wishes (
    graph_id    bigint primary key,
    tenant_id   int not null,
    id          bigint not null,
    kind        text not null check (kind in ('cancel', 'pause', 'resume')),
    to_go       int not null check (to_go > 0),
    wished_at   timestamptz not null,
    touched_at  timestamptz not null
);

-- Pause tasks of a tenant; returns those that were not, and whether they run: these go on.
create function pause_tasks(p_tenant int, p_tasks bigint[])
    returns table (id bigint, runs boolean)
    language plpgsql
    as $$
begin
    perform 1
       from duly.live l
      where l.id = any(p_tasks)
        and l.tenant_id = p_tenant
      order by l.id
        for update;

    return query
    with marked as (
            update duly.live l
               set is_paused = true,
                   status = (case when l.token is null then 'paused' else 'running' end)::duly.status
             where l.id = any(p_tasks)
               and l.tenant_id = p_tenant
               and l.cancel_requested_at is null
               -- A server of the version before may have let one wait again all the same.
               and not (l.is_paused and l.status in ('running', 'paused'))
            returning l.id, l.tenant_id, l.token is not null as runs
         ),
         noted as (
            insert into duly.events (task_id, tenant_id, at, kind)
            select m.id, m.tenant_id, duly.now(),
                   case when m.runs then 'pause_requested' else 'paused' end
              from marked m
         )
    select m.id, m.runs from marked m;
end
$$;

-- Let tasks of a tenant go on that are paused; returns them as they are now. The time for which
-- they were paused is not held against them: what is late for it may start as much later.
create function resume_tasks(p_tenant int, p_tasks bigint[])
    returns table (id bigint, shape_id int, status duly.status, start_by timestamptz)
    language plpgsql
    as $$
declare
    at timestamptz;
begin
    perform 1
       from duly.live l
      where l.id = any(p_tasks)
        and l.tenant_id = p_tenant
      order by l.id
        for update;

    at := duly.now();
    return query
    with marked as (
            update duly.live l
               set is_paused = false,
                   status = (case
                       when l.token is not null then 'running'
                       when l.blocked_by > 0 then 'blocked'
                       when l.ready_at > at then 'scheduled'
                       else 'waiting'
                   end)::duly.status,
                   ready_at = case
                       when l.token is not null or l.blocked_by > 0 then l.ready_at
                       else greatest(l.ready_at, at)
                   end,
                   start_by = case
                       when l.token is not null or l.blocked_by > 0 then l.start_by
                       else date_trunc('second', l.start_by + (greatest(l.ready_at, at) - l.ready_at))
                   end
             where l.id = any(p_tasks)
               and l.tenant_id = p_tenant
               and l.is_paused
            returning l.id, l.tenant_id, l.shape_id, l.status, l.start_by
         ),
         noted as (
            insert into duly.events (task_id, tenant_id, at, kind)
            select m.id, m.tenant_id, at, 'resumed'
              from marked m
         )
    select m.id, m.shape_id, m.status, m.start_by from marked m;
end
$$;

call keep_apart('graph_wishes');
