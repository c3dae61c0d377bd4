-- serves: 0003

-- The notes of one tenant, so that each tenant can have its turn.
create index ended_upstreams_by_tenant on ended_upstreams (tenant_id, task_id);

-- Tell dependants that tasks have ended for which they wait: some may start, some never can and
-- end as well, which their own dependants are told next. One tenant after the other, beginning
-- after p_after, and at most p_share edges of each in its turn: a graph with a million edges that
-- ends at once keeps nobody else's waiting. In all, about p_limit edges are gone through; a row
-- without an id says that there are more, and whose turn was the last. Under a term that is held
-- until the commit, so nobody else does it meanwhile. Dependants are locked in the order of ids.
--
-- A task may have any number of dependants, so few are looked at until it is seen that they have few.
create function settle_in_turns(
    p_duty text, p_term bigint, p_server smallint, p_limit int, p_share int, p_after int
)
    returns table (
        id bigint, tenant_id int, shape_id int, status duly.status, start_by timestamptz
    )
    language plpgsql
    as $$
declare
    at timestamptz;
    turn int := p_after;
    ended bigint[];
    statuses duly.status[];
    marks bigint[];
    upstreams bigint[];
    dependants bigint[];
    are_met boolean[];
    doomed bigint[];
    reasons jsonb[];
    seen int;
    portion int;
    most int := 1;
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
        turn := coalesce(
            (select min(e.tenant_id) from duly.ended_upstreams e where e.tenant_id > turn),
            (select min(e.tenant_id) from duly.ended_upstreams e)
        );
        if turn is null then
            return;
        end if;
        portion := least(rest, p_share);

        select array_agg(u.task_id), array_agg(u.status), array_agg(u.told_to)
          into ended, statuses, marks
          from (select e.task_id, e.status, e.told_to
                  from duly.ended_upstreams e
                 where e.tenant_id = turn
                 order by e.task_id
                 limit most
                   for update) as u;

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
                         limit portion
                       ) as edge
                 order by 1, 2
                 limit portion) as found;

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
                           else duly.start_by_of(
                            greatest(l.ready_at, at), l.delay_tolerance, l.patience, l.latest_start
                           )
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
           and seen = portion;
        delete from duly.ended_upstreams u
         where u.task_id = any(ended)
           and (seen < portion or u.task_id < (upstreams)[seen]);
        most := case when seen < portion then least(4 * most, 100) else 1 end;
        rest := rest - seen - cardinality(ended);
    end loop;

    return query
    select null::bigint, turn, null::int, null::duly.status, null::timestamptz;
end
$$;

-- For servers of the version before this one.
create or replace function settle_edges(p_duty text, p_term bigint, p_server smallint, p_limit int)
    returns table (
        id bigint, tenant_id int, shape_id int, status duly.status, start_by timestamptz
    )
    language sql
    as $$
    select * from duly.settle_in_turns(p_duty, p_term, p_server, p_limit, 250, 0)
$$;
