-- name: insert_edges
-- Store edges between tasks stored in the same transaction, which name each other by refs.
--   $1 tenant_id, $2 dependants, $3 upstreams, $4 conditions
insert into edges (dependant_id, upstream_id, tenant_id, condition, is_counted, by_ref)
select dependant_id, upstream_id, $1, condition, true, true
  from unnest($2::bigint[], $3::bigint[], $4::text[])
       as given (dependant_id, upstream_id, condition)

-- name: attach_edges
-- Add dependencies of new tasks on existing ones; returns the upstreams that do not exist.
--   $1 tenant_id, $2 dependants, $3 upstreams, $4 conditions
select unknown_id from attach_edges($1, $2::bigint[], $3::bigint[], $4::text[])

-- name: read_awaited
-- Return some of the live upstreams that a task waits for.
--   $1 tenant_id, $2 id, $3 limit
select e.upstream_id as id
  from edges e
 cross join lateral (select 1 from live l where l.id = e.upstream_id offset 0) as is_live
 where e.dependant_id = $2
   and e.tenant_id = $1
 limit $3

-- name: resolve_edges
-- Resolve the edges of ended upstreams, round-robin between tenants.
--   $1 duty, $2 term, $3 server, $4 about how many edges, $5 edges per tenant and turn,
--   $6 tenant served last
select id, tenant_id, shape_id, status, start_by
  from resolve_ended_upstreams($1, $2, $3::smallint, $4, $5, $6)

-- name: insert_graph
--   $1 id, $2 tenant_id, $3 user_id, $4 name, $5 task ids
insert into graphs (id, tenant_id, user_id, name, task_ids, submitted_at)
values ($1, $2, $3, $4, $5::bigint[], duly.now())

-- name: insert_graphs
-- Store several graphs at once.
--   $1 ids, $2 tenant ids, $3 user ids, $4 names, $5 task ids, each as the text of an array
insert into graphs (id, tenant_id, user_id, name, task_ids, submitted_at)
select id, tenant_id, user_id, name, task_ids::bigint[], duly.now()
  from unnest($1::bigint[], $2::int[], $3::int[], $4::text[], $5::text[])
       as given (id, tenant_id, user_id, name, task_ids)

-- name: read_graph_of
--   $1 tenant_id, $2 task_id
select graph_id
  from tasks
 where id = $2
   and tenant_id = $1

-- name: graphs_by_name
-- Return a tenant's graphs of a name, newest first, and whether any of their tasks is live.
--   $1 tenant_id, $2 name, $3 how many
select g.id,
       exists (
        select 1
          from unnest(g.task_ids) as task (id)
         cross join lateral (select 1 from live l where l.id = task.id offset 0) as found
       ) as is_live
  from graphs g
 where g.tenant_id = $1
   and g.name = $2
 order by g.id desc
 limit $3

-- name: read_task_ids
--   $1 tenant_id, $2 graph_id
select task_ids
  from graphs
 where id = $2
   and tenant_id = $1

-- name: read_tasks_of_graphs
--   $1 tenant_id, $2 graph ids
select id, task_ids
  from graphs
 where id = any($2::bigint[])
   and tenant_id = $1

-- name: read_graph
-- Return a graph of a tenant, and the number of its tasks in each status.
--   $1 tenant_id, $2 id
select g.name, g.submitted_at, g.task_ids,
       (select u.name from users u where u.id = g.user_id) as "user",
       (select json_object_agg(found.status, found.tasks)
          from (select coalesce(
                        (select l.status from live l where l.id = task.id),
                        (select e.status from ends e where e.task_id = task.id)
                       ) as status,
                       count(*) as tasks
                  from unnest(g.task_ids) as task (id)
                 group by 1) as found
         where found.status is not null) as counts
  from graphs g
 where g.id = $2
   and g.tenant_id = $1

-- name: read_graph_tasks
-- Return tasks of a tenant with their dependencies, in the order of the given ids.
--   $1 tenant_id, $2 ids
select task.*
  from unnest($2::bigint[]) with ordinality as asked (id, place)
 cross join lateral (
        select t.id, t.ref, t.name,
               coalesce(
                (select l.status from live l where l.id = asked.id),
                (select e.status from ends e where e.task_id = asked.id)
               ) as status,
               (select json_agg(json_build_object('task', d.upstream_id::text, 'on', d.condition))
                  from (select e.upstream_id, e.condition
                          from edges e
                         where e.dependant_id = asked.id
                         order by e.upstream_id
                         limit 100) as d) as depends_on
          from tasks t
         where t.id = asked.id
           and t.tenant_id = $1
         limit 1
       ) as task
 where task.status is not null
 order by asked.place

-- name: read_neighbours
-- Return the transitive upstreams and dependants of a task, and its direct dependants, at most $3
-- of each. By its id, a dependant is at most an hour older than its upstream, which prunes
-- partitions.
--   $1 tenant_id, $2 id, $3 how many
with recursive upstreams as (
        select $2::bigint as id
         union
        select edge.upstream_id
          from upstreams
         cross join lateral (
                select e.upstream_id
                  from edges e
                 where e.dependant_id = upstreams.id
                   and e.tenant_id = $1
                offset 0
               ) as edge
     ),
     dependants as (
        select $2::bigint as id
         union
        select edge.dependant_id
          from dependants
         cross join lateral (
                select e.dependant_id
                  from edges e
                 where e.upstream_id = dependants.id
                   and e.dependant_id > dependants.id - (3600::bigint << 31)
                   and e.dependant_id + 0 > dependants.id - (3600::bigint << 31)
                   and e.tenant_id = $1
                 order by e.dependant_id + 0
               ) as edge
     )
(select id, 'upstream' as kind from upstreams where id <> $2 limit $3)
 union all
(select id, 'dependant' from dependants where id <> $2 limit $3)
 union all
(select e.dependant_id, 'direct'
   from edges e
  where e.upstream_id = $2
    and e.dependant_id > $2 - (3600::bigint << 31)
    and e.dependant_id + 0 > $2 - (3600::bigint << 31)
    and e.tenant_id = $1
  order by e.dependant_id + 0
  limit $3)
