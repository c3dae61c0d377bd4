-- name: read_snapshot
-- Return capacity and usage in one snapshot: every live incarnation with its capacity, the running
-- attempts by incarnation and shape, the reservations, the quota fence, the revision of downstreams,
-- and the time. Usage is
-- derived from live leases and stopping attempts, so that it cannot leak; a lease of an ended
-- incarnation counts until it is reaped. Expired reservations do not count. Attempts of the tenants
-- in $2, which have limits, are counted separately; if $2 is null, those of every tenant.
--   $1 whether to count running attempts, $2 tenant ids
select json_build_object(
        'offers', (
            select coalesce(json_agg(offer), '[]')
              from (select i.id as incarnation_id, i.node_id, n.name, n.labels, n.draining, i.shortage,
                           i.capacity || n.capacity_override as capacity, i.revision, n.tenant_id
                      from incarnations i
                      join nodes n on n.id = i.node_id
                     where i.ended_at is null
                       and i.expires_at > duly.now()
                       and not i.is_stopping) as offer
        ),
        'in_use', (
            select coalesce(json_agg(used), '[]')
              from (select incarnation_id, shape_id, count(*) as times,
                           extract(epoch from min(leased_at + execution_cap) - duly.now())
                           as next_end,
                           case when $2::int[] is null or tenant_id in (select unnest($2::int[]))
                                then tenant_id end
                           as tenant_id
                      from (select incarnation_id, shape_id, tenant_id, leased_at, execution_cap
                              from live
                             where status = 'running'
                               and $1
                             union all
                            select incarnation_id, shape_id, tenant_id, leased_at, execution_cap
                              from stopping_attempts
                             where $1) as held
                     group by 1, 2, 5) as used
        ),
        'reserved', (
            select coalesce(json_agg(reserved), '[]')
              from (select node_id, resources, tenant_id
                      from reservations
                     where coalesce(expires_at, 'infinity') > duly.now()) as reserved
        ),
        'now', duly.now(),
        'downstreams', (
            select json_build_object('defined', defined, 'adapted', adapted) from downstream_revision
        ),
        'fence', (select json_build_object('revision', revision, 'given', given) from quotas)
       )::text

-- name: read_functions
-- Return the functions that workers know, by incarnation, for which they never change.
--   $1 incarnation ids
select id, functions
  from incarnations
 where id = any($1::bigint[])
   and functions is not null
