-- serves: 0003

-- A task finds the results of its upstreams under the names by which it asked for them: an edge
-- says whether that was the upstream's ref, or its id.
alter table edges add column by_ref boolean not null default false;

-- The results of the tasks that a task depends on, from above an upstream on, until they are
-- p_bytes together or p_results many. It ends as soon as that is so: what lies behind is not
-- even read.
create function read_inputs(p_task bigint, p_above bigint, p_results int, p_bytes bigint)
    returns table (upstream_id bigint, name text, result text)
    language plpgsql stable
    as $$
declare
    results int := 0;
    bytes bigint := 0;
begin
    for upstream_id, name, result in
        select edge.upstream_id,
               coalesce(
                (select t.ref from duly.tasks t where t.id = edge.upstream_id and edge.by_ref),
                edge.upstream_id::text
               ),
               ended.result
          from duly.edges edge
         cross join lateral (
                select e.result::text as result
                  from duly.ends e
                 where e.task_id = edge.upstream_id
                   and e.tenant_id = edge.tenant_id
                   and e.result is not null
                offset 0
               ) as ended
         where edge.dependant_id = p_task
           and edge.upstream_id > p_above
         order by edge.upstream_id
    loop
        return next;
        results := results + 1;
        bytes := bytes + octet_length(result);
        exit when results >= p_results or bytes >= p_bytes;
    end loop;
end
$$;
