-- name: lock_node
-- Lock a node, before its incarnation as in `join_node`: a second lock order would deadlock.
--   $1 node_id
select id
  from nodes
 where id = $1
   and removed_at is null
   for update

-- name: lock_incarnation
-- Lock the live incarnation of a node against concurrent leases on it, and advance its revision:
-- leases decided on what was free before then fail.
--   $1 node_id
update incarnations
   set revision = revision + 1
 where node_id = $1
   and ended_at is null

-- name: add
--   $1 id, $2 tenant_id, $3 node_id, $4 resources, $5 expires_at
insert into reservations (id, tenant_id, node_id, resources, created_at, expires_at)
values ($1, $2, $3, $4::jsonb, duly.now(), $5)

-- name: find
-- Return a reservation of a tenant that has not expired.
--   $1 tenant_id, $2 id
select id, node_id, resources, expires_at
  from reservations
 where id = $2
   and tenant_id = $1
   and coalesce(expires_at, 'infinity') > duly.now()

-- name: change
--   $1 id, $2 resources, $3 expires_at
update reservations
   set resources = $2::jsonb,
       expires_at = $3
 where id = $1
returning id

-- name: release
--   $1 tenant_id, $2 id
delete from reservations
 where id = $2
   and tenant_id = $1
   and coalesce(expires_at, 'infinity') > duly.now()
returning id

-- name: drop_expired
delete from reservations
 where expires_at <= duly.now()

-- name: read_allocations
-- Return the resources that a tenant, or any tenant if $1 is null, holds on nodes, newest first:
-- running tasks and reservations. All running tasks are scanned, which the capacity of the nodes bounds.
--   $1 tenant_id, $2 below this id, $3 how many, $4 id, $5 node name
with running as materialized (
        select id, tenant_id, shape_id, node_id
          from live
         where status = 'running'
     )
select mine.id, mine.kind,
       (select tn.name from tenants tn where tn.id = mine.tenant_id) as tenant, n.name as node,
       mine.resources, mine.expires_at
  from (
        select r.id, r.tenant_id, 'task' as kind, r.node_id, s.needs as resources,
               null::timestamptz as expires_at
          from running r
          join shapes s on s.id = r.shape_id
         where $1::int is null or r.tenant_id = $1
         union all
        select id, tenant_id, 'reservation', node_id, resources, expires_at
          from reservations
         where ($1::int is null or tenant_id = $1)
           and coalesce(expires_at, 'infinity') > duly.now()
       ) as mine
  join nodes n on n.id = mine.node_id
 where mine.id < $2
   and ($4::bigint is null or mine.id = $4)
   and ($5::text is null or n.name = $5)
 order by mine.id desc
 limit $3
