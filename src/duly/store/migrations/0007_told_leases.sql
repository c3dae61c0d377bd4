-- serves: 0003

-- Leases that come with what an agent needs to start them, for the incarnations in p_told:
-- whoever makes such a lease need not read the task once more. It is read by a statement of
-- its own, after the rows have been locked, so that a change that was answered before is in it.
create function lease_and_tell(
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
    ids bigint[];
    attempts int[];
    tokens bigint[];
    incarnations bigint[];
begin
    select array_agg(l.id), array_agg(l.attempt), array_agg(l.token),
           array_agg(l.incarnation_id)
      into ids, attempts, tokens, incarnations
      from duly.lease(
            p_duty, p_term, p_server, p_tasks, p_incarnations, p_revisions, p_shapes, p_backstop
           ) as l;

    return query
    select leased.id, leased.attempt, leased.token, leased.incarnation_id,
           told.shape_id, told.execution_cap, told.payload, told.idempotency_key
      from unnest(ids, attempts, tokens, incarnations)
           as leased (id, attempt, token, incarnation_id)
      left join lateral (
            select t.shape_id, t.execution_cap, t.payload::text as payload,
                   coalesce(t.idempotency_key, t.id::text) as idempotency_key
              from duly.tasks t
             where t.id = leased.id
            offset 0
           ) as told on leased.incarnation_id = any(p_told);
end
$$;
