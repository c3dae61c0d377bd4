-- name: _matches
-- Whether the task of an attempt `a` has the name or ref $6, and the user $7. It is looked up only
-- if one of them is given, in a scalar subquery: EXISTS might be hashed, which reads all tasks.
(($6::text is null and $7::text is null)
                            or (
                                select ($6::text is null or t.name = $6 or t.ref = $6)
                                       and ($7::text is null
                                            or t.user_id = any(array(
                                                select u.id
                                                  from users u
                                                 where u.name = $7
                                                   and u.tenant_id = any($1::int[])
                                               )))
                                  from tasks t
                                 where t.id = a.task_id
                               ))

-- name: pick
-- Return the newest attempts of some tenants: those that run, and those of each tenant that have
-- ended, read in the order of its index. A filter may match few of them, so at most $8 of each
-- tenant are examined, and the last of these is returned as the end of the read, even if it does
-- not match. The literal limit tells the planner that few rows are wanted, whatever the parameters.
--   $1 tenant ids, $2 leased since, $3 leased_at and $4 task_id of the attempt before these,
--   $5 outcomes (null: any, or none yet), $6 name, $7 user name, $8 how many to examine, $9 how many
select found.task_id, found.attempt, found.leased_at, found.is_match, found.is_end
  from (
        (select a.task_id, a.attempt, a.leased_at, true as is_match, false as is_end
           from (
                 select l.id as task_id, l.attempt, l.leased_at
                   from live l
                  where l.status = 'running'
                    and l.tenant_id = any($1::int[])
                ) as a
          where $5::outcome[] is null
            and a.leased_at >= $2
            and (a.leased_at, a.task_id) < ($3, $4)
            and
-- _matches
          order by a.leased_at desc, a.task_id desc
          limit $9)
         union all
        (select ended.*
           from unnest($1::int[]) as asked (tenant_id)
          cross join lateral (
                 select a.task_id, a.attempt, a.leased_at, a.is_match, a.place = $8 as is_end
                   from (
                         select a.*, row_number() over () as place,
                                ($5::outcome[] is null or a.outcome = any($5::outcome[])) and
-- _matches
                                as is_match
                           from (
                                 select a.task_id, a.attempt, a.leased_at, a.outcome
                                   from attempts a
                                  where (a.tenant_id, a.leased_at, a.task_id + 0)
                                        < (asked.tenant_id, $3, $4)
                                    and (a.tenant_id, a.leased_at) >= (asked.tenant_id, $2)
                                  order by a.tenant_id desc, a.leased_at desc, a.task_id + 0 desc
                                  limit 10000
                                ) as a
                          limit $8
                        ) as a
                  where a.is_match or a.place = $8
                  limit $9
                ) as ended)
       ) as found
 order by found.leased_at desc, found.task_id desc
 limit $9

-- name: pick_unsuccessful
-- Return the newest attempts of some tenants that ended with given outcomes, none of which is
-- `succeeded`: like `pick`, by the index of those that did not succeed.
--   $1 tenant ids, $2 leased since, $3 leased_at and $4 task_id of the attempt before these,
--   $5 outcomes, $6 name, $7 user name, $8 how many to examine, $9 how many
select found.task_id, found.attempt, found.leased_at, found.is_match, found.is_end
  from unnest($1::int[]) as asked (tenant_id)
 cross join unnest($5::outcome[]) as wanted (outcome)
 cross join lateral (
        select a.task_id, a.attempt, a.leased_at, a.is_match, a.place = $8 as is_end
          from (
                select a.*, row_number() over () as place,
-- _matches
                       as is_match
                  from (
                        select a.task_id, a.attempt, a.leased_at
                          from attempts a
                         where (a.tenant_id, a.outcome, a.leased_at, a.task_id + 0)
                               < (asked.tenant_id, wanted.outcome, $3, $4)
                           and (a.tenant_id, a.outcome, a.leased_at)
                               >= (asked.tenant_id, wanted.outcome, $2)
                           and a.outcome <> 'succeeded'
                         order by a.tenant_id desc, a.outcome desc, a.leased_at desc,
                                  a.task_id + 0 desc
                         limit 10000
                       ) as a
                 limit $8
               ) as a
         where a.is_match or a.place = $8
         limit $9
       ) as found
 order by found.leased_at desc, found.task_id desc
 limit $9

-- name: read_tenants
-- Return all tenants, even removed ones; or those that have a user of a given name.
--   $1 user name
select t.id
  from tenants t
 where $1::text is null
    or exists (select 1 from users u where u.tenant_id = t.id and u.name = $1)

-- name: find_named
-- Return the tasks of some tenants with a given name or ref, up to a bound: an attempt at one of few
-- tasks is found faster from the task.
--   $1 tenant ids, $2 name, $3 how many
select named.id
  from unnest($1::int[]) as asked (tenant_id)
 cross join lateral (
        (select t.id
           from tasks t
          where t.tenant_id = asked.tenant_id
            and t.name = $2
          limit 10001)
         union all
        (select t.id
           from tasks t
          where t.tenant_id = asked.tenant_id
            and t.ref = $2
            and t.name is distinct from $2
          limit 10001)
       ) as named
 limit $3

-- name: pick_of_tasks
-- Return the newest attempts at given tasks. What the indexes of lists could also be used for is
-- hidden from the planner: an attempt is looked up by its task.
--   $1 tenant ids, $2 leased since, $3 leased_at and $4 task_id of the attempt before these,
--   $5 outcomes (null: any, or none yet), $6 name, $7 user name, $8 task ids, $9 how many
select a.task_id, a.attempt, a.leased_at, true as is_match, false as is_end
  from unnest($8::bigint[]) as asked (task_id)
 cross join lateral (
        select asked.task_id, e.attempt, e.leased_at, e.tenant_id
          from attempts e
         where e.task_id = asked.task_id
           and ($5::outcome[] is null or e.outcome = any($5::outcome[]))
         union all
        select asked.task_id, l.attempt, l.leased_at, l.tenant_id
          from live l
         where l.id = asked.task_id
           -- That is, running; said so, all that runs might be walked through.
           and l.token is not null
           and $5::outcome[] is null
        offset 0
       ) as a
 where a.tenant_id = any($1::int[])
   and a.leased_at >= $2
   and (a.leased_at, a.task_id) < ($3, $4)
   and
-- _matches
 order by a.leased_at desc, a.task_id desc
 limit $9

-- name: read
-- Return attempts with their tasks, in the given order; those of all tenants if $1 is null. One that
-- has ended since it was selected is found among those that have ended.
--   $1 tenant_id, $2 task ids, $3 attempts
select listed.*
  from unnest($2::bigint[], $3::int[]) with ordinality as asked (task_id, attempt, place)
 cross join lateral (
        select t.id as task, t.name, t.ref,
               (select tn.name from tenants tn where tn.id = t.tenant_id) as tenant,
               (select u.name from users u where u.id = t.user_id) as "user",
               a.attempt,
               (select n.name from nodes n where n.id = a.node_id) as node,
               a.outcome, a.exit_code, a.reason, a.leased_at, a.started_at, a.finished_at,
               a.cpu_seconds, a.peak_memory_mb, a.wall_seconds
          from tasks t
         cross join lateral (
                select e.attempt, e.node_id, e.outcome, e.exit_code, e.reason, e.leased_at,
                       e.started_at, e.finished_at, e.cpu_seconds, e.peak_memory_mb, e.wall_seconds
                  from attempts e
                 where e.task_id = asked.task_id
                   and e.attempt = asked.attempt
                 union all
                select l.attempt, l.node_id, null, null, null, l.leased_at,
                       coalesce(measured.running_since, l.leased_at), null,
                       measured.cpu_seconds, measured.peak_memory_mb,
                       extract(epoch from duly.now() - measured.running_since)::real
                  from live l
                  left join lateral (
                        select l.running_since, l.cpu_seconds, l.peak_memory_mb
                         where l.measured_token = l.token
                       ) as measured on true
                 where l.id = asked.task_id
                   and l.attempt = asked.attempt
                   and l.token is not null
                 limit 1
               ) as a
         where t.id = asked.task_id
           and ($1::int is null or t.tenant_id = $1)
         limit 1
       ) as listed
 order by asked.place
