-- name: _matches
-- The filters of a list of tasks, for a row `t` of tasks.
           and ($6::text is null or t.name = $6 or t.ref = $6)
           and ($1::jsonb is null or t.labels @> $1)
           and ($2::text is null
                or t.user_id = any(array(select u.id from users u where u.name = $2)))
           and ($3::timestamptz is null or t.submitted_at >= $3)

-- name: pick_newest
-- Return the newest ids of all tenants' tasks. The inner limit is the maximum page size as a
-- literal, which tells the planner that few rows are wanted, whatever the parameter.
--   $1 labels, $2 user name, $3 submitted since, $4 below this id, $5 how many, $6 name
select id
  from (
        select t.id
          from tasks t
         where t.id < $4
           -- An id is minted at most a moment before its task is submitted: an hour is ample,
           -- and excludes the partitions of earlier days.
           and t.id >= (select coalesce(first_id_of(day_of($3::timestamptz - interval '1 hour')), 0))
-- _matches
         order by t.id desc
         limit 1001
       ) as newest
 limit $5

-- name: pick_named
-- Return the newest ids of all tenants' tasks with a given name or ref, tenant by tenant: the
-- indexes of names and refs are one per tenant. Of each tenant, no more than a page is read.
--   $1 labels, $2 user name, $3 submitted since, $4 below this id, $5 how many, $6 name
select newest.id
  from tenants tn
 cross join lateral (
        (select named.id
           from (select t.id
                   from tasks t
                  where t.tenant_id = tn.id
                    and t.name = $6
                    and t.id < $4
                    and t.id >= (
                        select coalesce(first_id_of(day_of($3::timestamptz - interval '1 hour')), 0)
                       )
-- _matches
                  order by t.id desc
                  limit 1001) as named
          limit $5)
         union all
        (select referred.id
           from (select t.id
                   from tasks t
                  where t.tenant_id = tn.id
                    and t.ref = $6
                    and t.name is distinct from $6
                    and t.id < $4
                    and t.id >= (
                        select coalesce(first_id_of(day_of($3::timestamptz - interval '1 hour')), 0)
                       )
-- _matches
                  order by t.id desc
                  limit 1001) as referred
          limit $5)
       ) as newest
 order by newest.id desc
 limit $5

-- name: _overdue
-- The filter of overdue tasks, for a row `t` of tasks.
           and (not $11::boolean or was_overdue(t.id))

-- name: pick_by_status
-- Return the newest ids of all tenants' tasks in any of the given statuses. As for one tenant, each
-- status is read from where it is rare.
--   $1 labels, $2 user name, $3 submitted since, $4 below this id, $5 how many, $6 name,
--   $7 node name, $8 live statuses, $9 of failed and cancelled, $10 done, $11 only overdue ones
with asked_node as materialized (
        select n.id from nodes n where n.name = $7
     )
select id
  from (
        (select l.id
           from live l
          cross join lateral (
                select 1
                  from tasks t
                 where t.id = l.id
-- _matches
-- _overdue
                 limit 1
               ) as kept
          where l.status = any($8::status[])
            and l.id < $4
            and cardinality($8::status[]) > 0
            and ($7::text is null or l.node_id in (select asked_node.id from asked_node))
          order by l.id desc
          limit 1001)
         union all
        (select not_done.task_id
           from unnest($9::status[]) as asked (status)
          cross join lateral (
                select e.task_id
                  from ends e
                 cross join lateral (
                        select 1
                          from tasks t
                         where t.id = e.task_id
-- _matches
-- _overdue
                         limit 1
                       ) as kept
                 where e.status = asked.status
                   and e.status <> 'done'
                   and e.task_id + 0 < $4
                   and ($7::text is null
                        or e.node_id in (select asked_node.id from asked_node))
                 order by e.task_id + 0 desc
                 limit 1001
               ) as not_done)
         union all
        (select t.id
           from tasks t
          cross join lateral (
                select ends.node_id
                  from ends
                 where ends.task_id = t.id
                   and ends.status = 'done'
                 limit 1
               ) as e
          where t.id < $4
            and $10::boolean
            and ($7::text is null or e.node_id in (select asked_node.id from asked_node))
-- _matches
-- _overdue
          order by t.id desc
          limit 1001)
       ) as newest (id)
 order by id desc
 limit $5

-- name: find_owner
-- Return the tenant that a task belongs to, and its plan, even if the tenant has been removed.
--   $1 task_id
select *
  from tenants_with_plans
 where tenant_id = (select t.tenant_id from tasks t where t.id = $1)

-- name: count_tasks
-- Count the tasks of every tenant by status: live ones, and those that ended since $1. No count of
-- one tenant's waiting tasks, and no other count, reads more than 100,000 rows.
--   $1 ended since
select tn.id as tenant_id, tn.name as tenant, counted.status::text, counted.tasks
  from (
        select waiting_of.id as tenant_id, 'waiting'::status as status, waiting.tasks
          from tenants waiting_of
         cross join lateral (
                select count(*) as tasks
                  from (
                        select 1
                          from live
                         where status = 'waiting'
                           and tenant_id = waiting_of.id
                         limit 100000
                       ) as bounded
               ) as waiting
         where waiting.tasks > 0
         union all
        select running.tenant_id, 'running'::status, count(*)
          from (select tenant_id from live where status = 'running' limit 100000) as running
         group by running.tenant_id
         union all
        select later.tenant_id, later.status, count(*)
          from (
                select tenant_id, status
                  from live
                 where status in ('scheduled', 'blocked', 'paused')
                 limit 100000
               ) as later
         group by later.tenant_id, later.status
         union all
        select newest.tenant_id, newest.status, count(*)
          from (
                select tenant_id, status, finished_at
                  from ends
                 order by task_id desc
                 limit 100000
               ) as newest
         where newest.finished_at >= $1
         group by newest.tenant_id, newest.status
       ) as counted
  join tenants tn on tn.id = counted.tenant_id
 order by tn.name, tn.id
