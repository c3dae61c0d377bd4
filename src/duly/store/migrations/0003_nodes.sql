-- Nodes that come and go, and are told what they have.

-- An agent that was told to stop says so, and gets no more work. `revision` rises with
-- whatever changes what is free besides leases, so that no lease is made on an old count.
alter table incarnations
    add column is_stopping boolean not null default false,
    add column revision int not null default 0;

-- What an administrator says that a node has, by kind: it replaces what its agent says.
alter table nodes add column capacity_override jsonb not null default '{}';

-- The labels that a node must have are part of what tells shapes apart.
alter table shapes add column requires jsonb not null default '{}';

-- Turn placements into leases, under a term that is held until the commit. A placement counts
-- only if what the incarnation has to give is what it was when the placement was decided.
drop function lease(text, bigint, smallint, bigint[], bigint[], interval);

create function lease(
    p_duty text, p_term bigint, p_server smallint,
    p_tasks bigint[], p_incarnations bigint[], p_revisions int[], p_backstop interval
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
      from unnest(p_tasks, p_incarnations, p_revisions)
           as placement (task, incarnation, revision)
      join duly.incarnations i on i.id = placement.incarnation
      join duly.nodes n on n.id = i.node_id
     where l.id = placement.task
       and l.id = any(p_tasks)
       -- Hidden from the planner, which would else consider to walk all that wait.
       and (l.status = 'waiting') is not false
       and i.id = any(p_incarnations)
       and i.ended_at is null
       and i.expires_at > at
       and i.revision = placement.revision
       and not i.is_stopping
       and not n.draining
    returning l.id, l.attempt, l.token, l.incarnation_id;
end
$$;

-- Begin a new incarnation of a node's agent, and end the one before it. Locked `for update`,
-- so that no lease can land on the old one meanwhile. Null when the node has been removed.
create or replace function join_node(
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
    perform 1 from duly.nodes n where n.id = p_node and n.removed_at is null for update;
    if not found then
        return null;
    end if;
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

-- Take a node away for good: its key is refused from now on, and what runs there is swept.
-- The node comes first, as in join_node: two orders would be a deadlock.
create function remove_node(p_node bigint)
    returns bigint
    language plpgsql
    as $$
declare
    at timestamptz;
begin
    perform 1 from duly.nodes n where n.id = p_node and n.removed_at is null for update;
    if not found then
        return null;
    end if;
    perform 1
       from duly.incarnations i
      where i.node_id = p_node and i.ended_at is null
        for update;

    at := duly.now();
    update duly.incarnations i
       set ended_at = at, end_reason = 'removed'
     where i.node_id = p_node and i.ended_at is null;
    update duly.nodes set removed_at = at where nodes.id = p_node;
    delete from duly.reservations r where r.node_id = p_node;
    return p_node;
end
$$;

-- Say what a node has, kind by kind, whatever its agent says. What runs is not touched.
create function override_capacity(p_node bigint, p_kinds jsonb)
    returns bigint
    language plpgsql
    as $$
begin
    perform 1 from duly.nodes n where n.id = p_node and n.removed_at is null for update;
    if not found then
        return null;
    end if;
    update duly.incarnations i
       set revision = i.revision + 1
     where i.node_id = p_node and i.ended_at is null;
    update duly.nodes set capacity_override = p_kinds where nodes.id = p_node;
    return p_node;
end
$$;

-- What went wrong lately, and who joined lately: for the record of each node.
create index attempts_gone_wrong on attempts (finished_at) where outcome in ('failed', 'lost');
create index incarnations_by_start on incarnations (started_at);

-- Parts of nodes that are kept free of tasks.
create table reservations (
    id          bigint primary key,
    tenant_id   int not null references tenants,
    node_id     bigint not null references nodes,
    resources   jsonb not null,
    created_at  timestamptz not null,
    expires_at  timestamptz
);

create index reservations_by_tenant on reservations (tenant_id, id);
