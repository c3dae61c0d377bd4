-- What must lock first and look afterwards, in statements of their own: under READ
-- COMMITTED each statement of a function sees what was committed before it began.

-- Turn placements into leases, under a term that is held until the commit.
create function lease(
    p_duty text, p_term bigint, p_server smallint,
    p_tasks bigint[], p_incarnations bigint[], p_backstop interval
)
    returns table (id bigint, attempt int, token bigint, incarnation_id bigint)
    language plpgsql
    as $$
declare
    at timestamptz;
begin
    perform 1
       from duly.terms t
      where t.duty = p_duty and t.term = p_term and t.server = p_server
        for key share;
    if not found then
        raise exception 'term % of % is over', p_term, p_duty using errcode = 'DU001';
    end if;

    perform 1
       from duly.incarnations i
      where i.id = any(p_incarnations)
      order by i.id
        for share;

    perform 1
       from duly.live l
      where l.id = any(p_tasks)
      order by l.id
        for update;

    at := duly.now();
    return query
    update duly.live l
       set status = 'running',
           attempt = l.attempt + 1,
           token = nextval('duly.tokens'),
           term = p_term,
           node_id = i.node_id,
           incarnation_id = i.id,
           leased_at = at,
           kill_at = at + l.execution_cap + p_backstop,
           reason = null
      from unnest(p_tasks, p_incarnations) as placement (task, incarnation)
      join duly.incarnations i on i.id = placement.incarnation
      join duly.nodes n on n.id = i.node_id
     where l.id = placement.task
       and l.id = any(p_tasks)
       -- Hidden from the planner, which would else consider to walk all that wait.
       and (l.status = 'waiting') is not false
       and i.id = any(p_incarnations)
       and i.ended_at is null
       and i.expires_at > at
       and not n.draining
    returning l.id, l.attempt, l.token, l.incarnation_id;
end
$$;

-- End tasks that have not started: cancelled, or failed because nothing could ever run them.
create function end_unstarted(p_tasks bigint[], p_status duly.status, p_reason jsonb)
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
             where l.id = any(p_tasks)
               and l.status in ('scheduled', 'blocked', 'waiting', 'paused')
            returning l.*
         ),
         closed as (
            insert into duly.ends (
                    task_id, tenant_id, status, reason, attempt, failures, losses,
                    ready_at, start_by, finished_at
                   )
            select r.id, r.tenant_id, p_status, p_reason, r.attempt, r.failures, r.losses,
                   r.ready_at, r.start_by, at
              from removed r
         ),
         noted as (
            insert into duly.events (task_id, tenant_id, at, kind, details)
            select r.id, r.tenant_id, at, p_status::text, p_reason
              from removed r
         ),
         buried as (
            insert into duly.dead_letters (task_id, tenant_id, code, failed_at)
            select r.id, r.tenant_id, p_reason ->> 'code', at
              from removed r
             where p_status = 'failed'
         )
    select removed.id from removed;
end
$$;

-- Cancel what belongs to a tenant; returns each live task with what was done about it.
create function request_cancel(p_tenant int, p_tasks bigint[])
    returns table (id bigint, ended boolean)
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
               set cancel_requested_at = coalesce(l.cancel_requested_at, duly.now())
             where l.id = any(p_tasks)
               and l.tenant_id = p_tenant
               -- That is, running; said so, all that runs might be walked through.
               and l.token is not null
            returning l.id, l.tenant_id, l.cancel_requested_at
         ),
         noted as (
            insert into duly.events (task_id, tenant_id, at, kind)
            select m.id, m.tenant_id, m.cancel_requested_at, 'cancel_requested'
              from marked m
         )
    select m.id, false from marked m
     union all
    select e.id, true
      from duly.end_unstarted(
            array(select l.id
                    from duly.live l
                   where l.id = any(p_tasks)
                     and l.tenant_id = p_tenant
                     and l.status <> 'running'),
            'cancelled',
            '{"code": "cancelled", "message": "Cancelled before it started.", "details": {}}'
           ) as e;
end
$$;

-- Begin a new incarnation of a node's agent, and end the one before it. Locked `for update`,
-- so that no lease can land on the old one meanwhile.
create function join_node(
    p_node bigint, p_capacity jsonb, p_labels jsonb, p_isolation text, p_version text,
    p_ttl interval
)
    returns bigint
    language plpgsql
    as $$
declare
    at timestamptz;
    fresh bigint;
begin
    perform 1 from duly.nodes n where n.id = p_node for update;
    perform 1
       from duly.incarnations i
      where i.node_id = p_node and i.ended_at is null
        for update;

    at := duly.now();
    update duly.incarnations i
       set ended_at = at, end_reason = 'joined again'
     where i.node_id = p_node and i.ended_at is null;
    update duly.nodes set labels = p_labels where nodes.id = p_node;
    insert into duly.incarnations
           (node_id, capacity, isolation, version, started_at, renewed_at, expires_at)
    values (p_node, p_capacity, p_isolation, p_version, at, at, at + p_ttl)
    returning incarnations.id into fresh;
    return fresh;
end
$$;

-- Begin or end the draining of a node. The incarnation is locked, so that a lease that is
-- being made either is there already or sees that the node drains. The node comes first,
-- as in join_node: two orders would be a deadlock.
create function drain_node(p_node bigint, p_draining boolean)
    returns bigint
    language plpgsql
    as $$
begin
    perform 1 from duly.nodes n where n.id = p_node and n.removed_at is null for update;
    if not found then
        return null;
    end if;
    perform 1
       from duly.incarnations i
      where i.node_id = p_node and i.ended_at is null
        for update;
    update duly.nodes set draining = p_draining where nodes.id = p_node;
    return p_node;
end
$$;
