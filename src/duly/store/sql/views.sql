-- name: pick_newest
-- Return the newest ids of a tenant's tasks. The inner limit is the maximum page size as a literal,
-- which tells the planner that few rows are wanted, whatever the parameter. Tenant and id are
-- compared and ordered as a row, which only the index by tenant supports: for a small tenant among
-- large ones, the index of all ids would be scanned completely.
--   $1 tenant_id, $2 labels, $3 user name, $4 submitted since, $5 below this id, $6 how many
select id
  from (
        select t.id
          from tasks t
         where (t.tenant_id, t.id) < ($1, $5)
           -- An id is minted at most a moment before its task is submitted: an hour is ample,
           -- and excludes the partitions of earlier days.
           and (t.tenant_id, t.id)
               >= ($1, (select coalesce(first_id_of(day_of($4::timestamptz - interval '1 hour')), 0)))
           and ($4::timestamptz is null or t.submitted_at >= $4)
           and ($2::jsonb is null or t.labels @> $2)
           and ($3::text is null
                or t.user_id = (select u.id from users u where u.tenant_id = $1 and u.name = $3))
         order by t.tenant_id desc, t.id desc
         limit 1001
       ) as newest
 limit $6

-- name: pick_named
-- Return the newest ids of a tenant's tasks with a given name or, if $8, with that ref. Each branch
-- is read in the order of its index, and the branches are merged.
--   $1 tenant_id, $2 labels, $3 user name, $4 submitted since, $5 below this id, $6 how many,
--   $7 name, $8 whether refs match as well
select id
  from (
        select candidate.id
          from (
                (select t.id
                   from tasks t
                  where t.tenant_id = $1
                    and t.name = $7
                    and t.id < $5
                    and (t.tenant_id, t.id)
                        >= ($1, (select coalesce(first_id_of(day_of($4::timestamptz - interval '1 hour')), 0)))
                    and ($4::timestamptz is null or t.submitted_at >= $4)
                    and ($2::jsonb is null or t.labels @> $2)
                    and ($3::text is null
                         or t.user_id = (select u.id from users u where u.tenant_id = $1 and u.name = $3))
                  order by t.id desc
                  limit 1001)
                 union all
                (select t.id
                   from tasks t
                  where t.tenant_id = $1
                    and t.ref = $7
                    and t.name is distinct from $7
                    and $8::boolean
                    and t.id < $5
                    and (t.tenant_id, t.id)
                        >= ($1, (select coalesce(first_id_of(day_of($4::timestamptz - interval '1 hour')), 0)))
                    and ($4::timestamptz is null or t.submitted_at >= $4)
                    and ($2::jsonb is null or t.labels @> $2)
                    and ($3::text is null
                         or t.user_id = (select u.id from users u where u.tenant_id = $1 and u.name = $3))
                  order by t.id desc
                  limit 1001)
               ) as candidate
         order by candidate.id desc
         limit 1001
       ) as newest
 limit $6

-- name: pick_by_status
-- Return the newest ids of a tenant's tasks in any of the given statuses. Each status is read from
-- where it is rare: live tasks from `live`, failed and cancelled ones through a partial
-- index, and only done ones among all tasks. The four branches are ordered by id and merged.
--   $1 tenant_id, $2 labels, $3 user name, $4 submitted since, $5 below this id, $6 how many,
--   $7 name, $8 node name, $9 live statuses, $10 failed, $11 cancelled, $12 done,
--   $13 whether refs match the name as well, $14 only overdue ones
with asked_user as materialized (
        select u.id from users u where u.tenant_id = $1 and u.name = $3
     ),
     asked_node as materialized (
        select n.id from nodes n where n.name = $8
     )
select id
  from (
        select candidate.id
          from (
                (select l.id, l.node_id
                   from live l
                  where l.tenant_id = $1
                    and l.status = any($9::status[])
                    and l.id < $5
                    and cardinality($9::status[]) > 0
                  order by l.id desc)
                 union all
                (select e.task_id, e.node_id
                   from ends e
                  where e.tenant_id = $1
                    and e.status = 'failed'
                    and e.task_id < $5
                    and $10::boolean
                  order by e.task_id desc)
                 union all
                (select e.task_id, e.node_id
                   from ends e
                  where e.tenant_id = $1
                    and e.status = 'cancelled'
                    and e.task_id < $5
                    and $11::boolean
                  order by e.task_id desc)
                 union all
                (select t.id, e.node_id
                   from tasks t
                  cross join lateral (
                        select ends.node_id
                          from ends
                         where ends.task_id = t.id
                           and ends.status = 'done'
                         limit 1
                       ) as e
                  where t.tenant_id = $1
                    and t.id < $5
                    and $12::boolean
                  order by t.id desc)
               ) as candidate (id, node_id)
         cross join lateral (
                select 1
                  from tasks t
                 where t.id = candidate.id
                   and t.tenant_id = $1
                   and ($8::text is null or candidate.node_id in (select id from asked_node))
                   and ($7::text is null or t.name = $7 or ($13::boolean and t.ref = $7))
                   and ($2::jsonb is null or t.labels @> $2)
                   and ($3::text is null or t.user_id = (select id from asked_user))
                   and ($4::timestamptz is null or t.submitted_at >= $4)
                   and (not $14::boolean or was_overdue(t.id))
                 limit 1
               ) as kept
         order by candidate.id desc
         limit 1001
       ) as newest
 limit $6

-- name: read_tasks
-- Return tasks as their tenant sees them, newest first; of all tenants if $1 is null.
-- Payloads of more than $3 bytes are left out, to bound the size of a page, and at most $4 dependencies of a task are returned. Each task
-- is looked up separately, with a limit, so that every plan reads only the partition of its id.
--   $1 tenant_id, $2 ids, $3 longest payload, $4 how many dependencies
select task.*
  from unnest($2::bigint[]) as asked (id)
 cross join lateral (
        select t.id, t.name, t.tier, t.labels, t.delay_tolerance, t.execution_cap,
               t.max_attempts, t.on_lost, t.priority, t.run_at, t.idempotency_key, t.replay_of,
               t.submitted_at, t.graph_id, t.ref, t.tenant_id,
               (select tn.name from tenants tn where tn.id = t.tenant_id) as tenant,
               (select json_agg(json_build_object('task', d.upstream_id::text, 'on', d.condition))
                  from (select e.upstream_id, e.condition
                          from edges e
                         where e.dependant_id = asked.id
                         order by e.upstream_id
                         limit $4) as d) as depends_on,
               case
                   when t.unique_key is not null
                   then json_build_object('key', t.unique_key, 'while', t.unique_while)
               end as "unique",
               case when octet_length(t.payload::text) <= $3 then t.payload end as payload,
               (select s.needs from shapes s where s.id = t.shape_id) as needs,
               (select s.requires from shapes s where s.id = t.shape_id) as requires,
               (select s.concurrency from shapes s where s.id = t.shape_id) as concurrency,
               (select s.queue from shapes s where s.id = coalesce(l.shape_id, t.shape_id)) as queue,
               (select s.user_id from shapes s where s.id = t.shape_id) as sharing_user_id,
               (select s.uses from shapes s where s.id = t.shape_id) as uses,
               (select s.function ->> 'name' from shapes s where s.id = t.shape_id) as function,
               (select array_agg(st.name order by st.recorded_at, st.name)
                  from stages st
                 where st.task_id = asked.id) as stages,
               (select c.parent_id from children c where c.task_id = asked.id) as parent_id,
               case when l.status = 'waiting' then l.start_by - duly.now() end as slack,
               (select u.name from users u where u.id = t.user_id) as "user",
               'server-' || t.admitted_by as admitted_by,
               (select n.name from nodes n where n.id = coalesce(l.node_id, e.node_id)) as node,
               (select n.enforcement from nodes n where n.id = coalesce(l.node_id, e.node_id))
               as enforcement,
               coalesce(l.status, e.status) as status,
               coalesce(l.blocked_by, 0) as blocked_by,
               coalesce(l.ready_at, e.ready_at) as ready_at,
               coalesce(l.start_by, e.start_by) as start_by,
               -- Most tasks cannot have been overdue, and are not looked up.
               (coalesce(l.start_by, e.start_by)
                < coalesce(l.leased_at, e.started_at, e.finished_at, duly.now())
                or coalesce(e.finished_at, duly.now()) > t.submitted_at + t.delay_tolerance)
               and was_overdue(asked.id) as is_overdue,
               coalesce(l.attempt, e.attempt) as attempt,
               coalesce(l.failures, e.failures) as failures,
               coalesce(l.losses, e.losses) as losses,
               coalesce(l.leased_at, e.started_at) as started_at,
               l.cancel_requested_at, coalesce(l.is_paused, false) as is_paused, e.finished_at,
               case when l.id is null then e.outcome else a.outcome end as outcome,
               case when l.id is null then e.exit_code else a.exit_code end as exit_code,
               case when l.id is null then e.reason else l.reason end as reason,
               a.cpu_seconds, a.peak_memory_mb, a.wall_seconds,
               coalesce(
                extract(epoch from l.expected_run_time)::float8,
                (select exp(r.log_mean)
                   from run_times r
                  where r.tenant_id = t.tenant_id
                    and r.name = t.name)
               ) as expected_run_time,
               case
                   when l.progress_token = l.token
                   then json_build_object(
                            'fraction', l.progress, 'text', l.progress_text, 'at', l.progress_at
                        )
               end as progress,
               o.schedule_id, o.fire_at, o.scheduling_type
          from tasks t
          left join live l on l.id = asked.id
          left join ends e on e.task_id = asked.id
          left join attempts a on a.task_id = asked.id
                              and a.attempt = coalesce(l.attempt, e.attempt)
          left join lateral (
                select schedule_id, fire_at, scheduling_type
                  from occurrences
                 where task_id = asked.id
                 union all
                select schedule_id, fire_at, scheduling_type
                  from occurrences
                 where graph_id = t.graph_id
                 limit 1
               ) as o on true
         where t.id = asked.id
           and ($1::int is null or t.tenant_id = $1)
           and coalesce(l.status, e.status) is not null
         limit 1
       ) as task
 order by task.id desc

-- name: is_live
-- Return whether a task of the tenant has not ended.
--   $1 tenant_id, $2 id
select exists (select 1 from live where id = $2 and tenant_id = $1)

-- name: select_live
-- Return those of many tasks of the tenant that have not ended.
--   $1 tenant_id, $2 ids
select l.id
  from unnest($2::bigint[]) as given (id)
  join live l on l.id = given.id
 where l.tenant_id = $1

-- name: read_attempts
-- Return the attempts of a task in order, the running one last, with the measurements that its node
-- has reported.
--   $1 tenant_id, $2 task_id, $3 above this attempt, $4 how many
select a.attempt, n.name as node, a.outcome, a.exit_code, a.reason, a.leased_at, a.started_at,
       a.finished_at, a.cpu_seconds, a.peak_memory_mb, a.wall_seconds
  from attempts a
  left join nodes n on n.id = a.node_id
 where a.task_id = $2
   and a.attempt > $3
   -- Hidden from the planner, which might walk all attempts of the tenant.
   and (a.tenant_id = $1) is true
 union all
select l.attempt, n.name, null, null, null, l.leased_at,
       coalesce(measured.running_since, l.leased_at), null,
       measured.cpu_seconds, measured.peak_memory_mb,
       extract(epoch from duly.now() - measured.running_since)::real
  from live l
  left join nodes n on n.id = l.node_id
  left join lateral (
        select l.running_since, l.cpu_seconds, l.peak_memory_mb
         where l.measured_token = l.token
       ) as measured on true
 where l.id = $2
   and l.tenant_id = $1
   and l.status = 'running'
   and l.attempt > $3
 order by attempt
 limit $4

-- name: read_log_end
-- Return the size and the tail of an attempt's log, by default the latest attempt's. A running
-- attempt has no end of log yet, and that of an attempt lost with its node is unknown. Returns no
-- row if the tenant has no such task.
--   $1 tenant_id, $2 task_id, $3 attempt
with task as (
        select t.id,
               l.id is not null as is_live,
               coalesce(l.status = 'running', false) as is_running,
               coalesce(l.attempt, e.attempt) as latest
          from tasks t
          left join live l on l.id = t.id
          left join ends e on e.task_id = t.id
         where t.tenant_id = $1
           and t.id = $2
     )
select task.is_live, task.latest,
       coalesce($3::int, task.latest) as attempt,
       task.is_running and task.latest = coalesce($3::int, task.latest) as is_running,
       coalesce(a.log_size, 0) as size,
       coalesce(a.log_tail, ''::bytea) as tail,
       coalesce(a.reason ->> 'code' in ('node_lost', 'node_removed'), false) as is_lost
  from task
  left join attempts a on a.task_id = $2 and a.attempt = coalesce($3::int, task.latest)

-- name: read_result
-- Return the status of a task, why it has ended, and its result: the JSON text exactly as it was
-- written.
--   $1 tenant_id, $2 task_id
select coalesce(l.status, e.status) as status, e.reason, e.result::text as result
  from tasks t
  left join live l on l.id = t.id
  left join ends e on e.task_id = t.id
 where t.tenant_id = $1
   and t.id = $2

-- name: count_ahead
-- Count the waiting tasks that rank before a task in its subqueue, up to $3.
--   $1 tenant_id, $2 task_id, $3 at most
select count(*)::int
  from (
        select 1
          from live me
          join live other on other.tenant_id = me.tenant_id
                         and other.shape_id = me.shape_id
                         and other.status = 'waiting'
                         and (
                            other.start_by, -other.priority, -other.remaining_path,
                            coalesce(other.expected_run_time, other.execution_cap), other.id
                         ) < (
                            me.start_by, -me.priority, -me.remaining_path,
                            coalesce(me.expected_run_time, me.execution_cap), me.id
                         )
                         and other.start_by <= me.start_by
         where me.id = $2
           and me.tenant_id = $1
         limit $3
       ) as ahead

-- name: pick_dead_letters
-- Return the newest ids of a tenant's dead letters.
--   $1 tenant_id, $2 code of the reason, $3 failed since, $4 below this id, $5 how many
select d.task_id
  from dead_letters d
 where d.tenant_id = $1
   and d.task_id < $4
   and ($2::text is null or d.code = $2)
   and ($3::timestamptz is null or d.failed_at >= $3)
 order by d.task_id desc
 limit $5

-- name: is_dead_letter
--   $1 tenant_id, $2 task_id
select exists (select 1 from dead_letters where tenant_id = $1 and task_id = $2)

-- name: tenant_by_name
-- Return a tenant and its plan, for an administrator who acts on its behalf.
--   $1 name
select *
  from tenants_with_plans
 where tenant = $1
   and removed_at is null
