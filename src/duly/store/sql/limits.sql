-- name: read_current_usage
-- Return the current usage of a tenant: running tasks and stopping attempts by shape, reservations,
-- tasks that wait or are scheduled, and the tokens as last stored. All running tasks are scanned,
-- which the capacity of the nodes bounds; other counts read at most 100,000 rows.
--   $1 tenant_id, $2 what an artifact counts at least
select duly.now() as now, b.tokens, b.filled_at,
       (select coalesce(json_agg(used), '[]')
          from (select s.needs, held.times
                  from (select shape_id, count(*) filter (where tenant_id = $1) as times
                          from (select shape_id, tenant_id from live where status = 'running'
                                 union all
                                select shape_id, tenant_id from stopping_attempts) as running
                         group by shape_id) as held
                  join shapes s on s.id = held.shape_id
                 where held.times > 0) as used) as running,
       (select coalesce(json_agg(resources), '[]')
          from reservations
         where tenant_id = $1
           and coalesce(expires_at, 'infinity') > duly.now()) as reserved,
       (select count(*)
          from (select 1 from live where status = 'waiting' and tenant_id = $1 limit 100000)
            as counted)
       + (select count(*) filter (where tenant_id = $1)
            from (select tenant_id from live where status = 'scheduled' limit 100000) as counted)
       as waiting,
       (select count(*) from schedules where tenant_id = $1) as schedules,
       (select coalesce(sum(greatest(bytes, $2::bigint)), 0)::bigint
          from artifacts
         where tenant_id = $1) as artifact_bytes
  from (select 1) as one
  left join buckets b on b.tenant_id = $1
