-- name: insert_edges
-- Store edges between tasks that are stored in the same transaction.
--   $1 tenant_id, $2 dependants, $3 upstreams, $4 conditions
insert into edges (dependant_id, upstream_id, tenant_id, condition, is_counted)
select dependant_id, upstream_id, $1, condition, true
  from unnest($2::bigint[], $3::bigint[], $4::text[])
       as given (dependant_id, upstream_id, condition)

-- name: attach_edges
-- Let new tasks depend on tasks that were there before; returns those that are not known.
--   $1 tenant_id, $2 dependants, $3 upstreams, $4 conditions
select unknown_id from attach_edges($1, $2::bigint[], $3::bigint[], $4::text[])

-- name: settle_edges
-- Tell dependants that tasks have ended.
--   $1 duty, $2 term, $3 server, $4 about how many edges
select id, tenant_id, shape_id, status, start_by
  from settle_edges($1, $2, $3::smallint, $4)

-- name: insert_graph
--   $1 id, $2 tenant_id, $3 user_id, $4 name, $5 task ids
insert into graphs (id, tenant_id, user_id, name, task_ids, submitted_at)
values ($1, $2, $3, $4, $5::bigint[], duly.now())
