-- serves: 0003

-- A placement counts only if the task still asks for what it asked for when that was decided:
-- one that was changed meanwhile may need more than there is. The function without shapes
-- stays for servers of the version before this one; a later migration may drop it.
create function lease(
    p_duty text, p_term bigint, p_server smallint,
    p_tasks bigint[], p_incarnations bigint[], p_revisions int[], p_shapes int[],
    p_backstop interval
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
      from unnest(p_tasks, p_incarnations, p_revisions, p_shapes)
           as placement (task, incarnation, revision, shape)
      join duly.incarnations i on i.id = placement.incarnation
      join duly.nodes n on n.id = i.node_id
     where l.id = placement.task
       and l.id = any(p_tasks)
       -- Hidden from the planner, which would else consider to walk all that wait.
       and (l.status = 'waiting') is not false
       and (l.shape_id = placement.shape) is not false
       and i.id = any(p_incarnations)
       and i.ended_at is null
       and i.expires_at > at
       and i.revision = placement.revision
       and not i.is_stopping
       and not n.draining
    returning l.id, l.attempt, l.token, l.incarnation_id;
end
$$;
