-- name: read_tasks_with_inputs
-- Return the tasks of which an upstream has a result. At most $2 upstreams of a task are checked; a
-- task with more is returned too, since it may have inputs.
--   $1 task ids, $2 how many upstreams of each are looked at
select given.id
  from unnest($1::bigint[]) as given (id)
 cross join lateral (
        select count(*) > $2::int or bool_or(found.has_result) as may_have
          from (select e.upstream_id, e.tenant_id
                  from edges e
                 where e.dependant_id = given.id
                 limit $2::int + 1) as edge
         cross join lateral (
                select exists (
                        select 1
                          from ends e
                         where e.task_id = edge.upstream_id
                           and e.tenant_id = edge.tenant_id
                           and e.result is not null
                       ) as has_result
                offset 0
               ) as found
       ) as inputs
 where inputs.may_have

-- name: read_inputs
-- Return the results of a task's upstreams, in id order.
--   $1 task_id, $2 above this upstream, $3 how many, $4 about how many bytes
select upstream_id, name, result from read_inputs($1, $2, $3, $4)

-- name: name_by_ref
-- Let tasks find the results of upstreams by ref, where the given name is the upstream's ref.
--   $1 dependants, $2 upstreams, $3 what they are called
update edges
   set by_ref = true
  from unnest($1::bigint[], $2::bigint[], $3::text[]) as given (dependant_id, upstream_id, ref)
 cross join lateral (
        select t.ref from tasks t where t.id = given.upstream_id offset 0
       ) as upstream
 where edges.dependant_id = given.dependant_id
   and edges.upstream_id = given.upstream_id
   and edges.dependant_id = any($1)
   and upstream.ref = given.ref

-- name: copy_ended
-- Give a replay the edges of the original task to upstreams that have ended, so that it finds the
-- same results. The edges are not counted, as there is nothing left to wait for.
--   $1 tenant_id, $2 the task, $3 its replay
insert into edges (dependant_id, upstream_id, tenant_id, condition, is_counted, by_ref)
select $3, e.upstream_id, e.tenant_id, e.condition, false, e.by_ref
  from edges e
 where e.dependant_id = $2
   and e.tenant_id = $1
   and exists (select 1 from ends where ends.task_id = e.upstream_id)
