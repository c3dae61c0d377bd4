-- serves: 0003

-- Leases that come with what an agent needs to start them, for the incarnations in p_told. As
-- `lease_and_tell`, which stays for servers of the version before this one, but a task is looked
-- up once: to join it to its placement takes a sort of all ids for each of them. What is told is
-- read after the rows have been locked, so that a change that was answered before is in it.
create function lease_told(
    p_duty text, p_term bigint, p_server smallint,
    p_tasks bigint[], p_incarnations bigint[], p_revisions int[], p_shapes int[],
    p_backstop interval, p_told bigint[]
)
    returns table (
        id bigint, attempt int, token bigint, incarnation_id bigint,
        shape_id int, execution_cap interval, payload text, idempotency_key text
    )
    language plpgsql
    as $$
declare
    at timestamptz;
    ids bigint[];
    shapes int[];
    chosen bigint[];
    nodes bigint[];
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
    -- In the order of the ids: the place of a task among them is found by halving.
    select array_agg(placement.task order by placement.task),
           array_agg(placement.shape order by placement.task),
           array_agg(i.id order by placement.task),
           array_agg(i.node_id order by placement.task)
      into ids, shapes, chosen, nodes
      from duly.incarnations i
      join duly.nodes n on n.id = i.node_id
      join unnest(p_tasks, p_incarnations, p_revisions, p_shapes)
           as placement (task, incarnation, revision, shape)
        on placement.incarnation = i.id and placement.revision = i.revision
     where i.id = any(p_incarnations)
       and i.ended_at is null
       and i.expires_at > at
       and not i.is_stopping
       and not n.draining;

    return query
    with leased as (
            update duly.live l
               set status = 'running',
                   attempt = l.attempt + 1,
                   token = nextval('duly.tokens'),
                   term = p_term,
                   node_id = (nodes)[width_bucket(l.id, ids)],
                   incarnation_id = (chosen)[width_bucket(l.id, ids)],
                   leased_at = at,
                   kill_at = at + l.execution_cap + p_backstop,
                   reason = null
             where l.id = any(ids)
               -- Hidden from the planner, which would else consider to walk all that wait.
               and (l.status = 'waiting') is not false
               and (l.shape_id = (shapes)[width_bucket(l.id, ids)]) is not false
            returning l.id, l.attempt, l.token, l.incarnation_id
         )
    select l.id, l.attempt, l.token, l.incarnation_id,
           told.shape_id, told.execution_cap, told.payload, told.idempotency_key
      from leased l
      left join lateral (
            select t.shape_id, t.execution_cap, t.payload::text as payload,
                   coalesce(t.idempotency_key, t.id::text) as idempotency_key
              from duly.tasks t
             where t.id = l.id
            offset 0
           ) as told on l.incarnation_id = any(p_told);
end
$$;
