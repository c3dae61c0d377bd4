-- name: read_nodes
-- Return nodes, newest first, each with its latest incarnation; of a tenant, its workers.
--   $1 below this id, $2 how many, $3 id, $4 name, $5 tenant_id or null
select n.id, n.name, n.labels, i.id as incarnation_id,
       i.capacity || n.capacity_override as capacity,
       case when n.capacity_override <> '{}' then i.capacity end as reported_capacity,
       n.draining or coalesce(i.is_stopping, false) as draining,
       i.renewed_at as last_heartbeat_at, n.enforcement, i.shortage,
       coalesce(i.ended_at is null and i.expires_at > duly.now(), false) as is_alive,
       coalesce(i.end_reason = 'left', false) as has_left,
       i.functions, (select t.name from tenants t where t.id = n.tenant_id) as tenant
  from nodes n
  left join lateral (
        select *
          from incarnations
         where incarnations.node_id = n.id
         order by incarnations.id desc
         limit 1
       ) as i on true
 where n.removed_at is null
   and n.id < $1
   and ($3::bigint is null or n.id = $3)
   and ($4::text is null or n.name = $4)
   and ($5::int is null or n.tenant_id = $5)
 order by n.id desc
 limit $2

-- name: count_tasks
-- Count a tenant's tasks by status: live ones, and those that ended since $2. No count reads more
-- than 100,000 rows, which bounds its cost; tasks that wait for anything but room share one count.
--   $1 tenant_id, $2 ended since
select later.scheduled, later.blocked, later.paused,
       (select count(*)
          from (select 1 from live where status = 'waiting' and tenant_id = $1 limit 100000)
            as counted
       ) as waiting,
       (select count(*) filter (where tenant_id = $1)
          from (select tenant_id from live where status = 'running' limit 100000) as counted
       ) as running,
       ended.done, ended.failed, ended.cancelled
  from (
        select count(*) filter (where counted.status = 'scheduled') as scheduled,
               count(*) filter (where counted.status = 'blocked') as blocked,
               count(*) filter (where counted.status = 'paused') as paused
          from (
                select status
                  from live
                 where tenant_id = $1
                   and status in ('scheduled', 'blocked', 'paused')
                 limit 100000
               ) as counted
       ) as later,
       (
        select count(*) filter (where newest.status = 'done') as done,
               count(*) filter (where newest.status = 'failed') as failed,
               count(*) filter (where newest.status = 'cancelled') as cancelled
          from (
                select tenant_id, status, finished_at
                  from ends
                 order by task_id desc
                 limit 100000
               ) as newest
         where newest.tenant_id = $1
           and newest.finished_at >= $2
       ) as ended

-- name: count_postponed
-- Count the tasks that wait for the end of peak time, among the 100,000 oldest waiting ones.
--   $1 tenant_id, or null for all, $2 kinds of resources at peak, $3 the slack up to which off_peak
--   tasks wait, $4 that of all others
select count(*)
  from (
        select shape_id, start_by - duly.now() as slack
          from live
         where status = 'waiting'
           and ($1::int is null or tenant_id = $1)
         order by id
         limit 100000
       ) as counted
  join shapes s on s.id = counted.shape_id
  left join queues q on q.name = s.queue
 where s.queue is distinct from 'urgent'
   and counted.slack > case when q.off_peak then $3::interval else $4::interval end
   and (s.needs ?| $2::text[] or s.needs -> 'extra' ?| $2::text[])

-- name: count_live
-- Count the waiting, running and scheduled tasks of all tenants, each up to 100,000, for the
-- metrics.
select (select count(*) from (select 1 from live where status = 'waiting' limit 100000) as counted)
       as waiting,
       (select count(*) from (select 1 from live where status = 'running' limit 100000) as counted)
       as running,
       (select count(*) from (select 1 from live where status = 'scheduled' limit 100000) as counted)
       as scheduled

-- name: read_leader
-- Return the time, the version of PostgreSQL, the leader, if there is one, and the peak state that
-- was stored last.
--   $1 duty
select clock.now as time,
       current_setting('server_version') as version,
       case when t.expires_at > clock.now then 'server-' || t.server end as leader,
       coalesce(t.peak, '{}') as peak
  from (select duly.now() as now) as clock
  left join terms t on t.duty = $1

-- name: is_migrated
-- Check that the database is reachable and has the tables of this version.
select exists (select 1 from terms) is not null

-- name: read_servers
-- Return the servers with a recent heartbeat that have not left, and the duties that each leads.
--   $1 how long a silent server counts as being there, $2 how long it is listed at all
select s.number,
       s.name as host,
       s.address,
       s.pid,
       s.version,
       s.started_at,
       s.heartbeat_at,
       s.heartbeat_at > clock.now - $1::interval as is_alive,
       t.duty,
       t.term
  from (select duly.now() as now) as clock
  join servers s
    on s.heartbeat_at > clock.now - $2::interval
  left join terms t
    on t.server = s.number
   and t.expires_at > clock.now
 order by s.number, t.duty
