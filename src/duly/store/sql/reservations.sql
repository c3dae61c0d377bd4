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
-- running tasks, marked ones whose attempt is stopping, and reservations. All running tasks are
-- scanned, which the capacity of the nodes bounds.
--   $1 tenant_id, $2 below this id, $3 how many, $4 id, $5 node name
with page as materialized (
        select *
          from (select id, tenant_id, 'task' as kind, node_id, shape_id,
                       null::jsonb as resources, null::timestamptz as expires_at
                  from live
                 where status = 'running'
                 union all
                select task_id, tenant_id, 'task', node_id, shape_id, null, null
                  from stopping_attempts
                 union all
                select id, tenant_id, 'reservation', node_id, null, resources, expires_at
                  from reservations
                 where coalesce(expires_at, 'infinity') > duly.now()) as held
         where ($1::int is null or tenant_id = $1)
           and id < $2
           and ($4::bigint is null or id = $4)
           and ($5::text is null or node_id = any(array(select n.id from nodes n where n.name = $5)))
         order by id desc
         limit $3
     )
select page.id, page.kind,
       (select tn.name from tenants tn where tn.id = page.tenant_id) as tenant,
       (select n.name from nodes n where n.id = page.node_id) as node,
       coalesce(page.resources, (select s.needs from shapes s where s.id = page.shape_id))
       as resources,
       page.expires_at
  from page
 order by page.id desc
