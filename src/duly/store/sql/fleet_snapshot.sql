-- name: read_stock
-- Return what there is to give, and what of it has been given, as of one moment: every
-- incarnation that may take work with what it has; what runs where, by shape; what is reserved.
-- What is in use is derived from live leases, so that it cannot leak; a lease whose incarnation
-- has ended still counts until it is swept. A reservation that has expired does not count.
-- What runs of the tenants in $2 is told apart, because they have limits. With it come the marks
-- that a lease has to name, and the time.
--   $1 whether to count what runs, $2 tenant ids
select json_build_object(
        'offers', (
            select coalesce(json_agg(offer), '[]')
              from (select i.id as incarnation_id, i.node_id, n.name, n.labels, n.draining, i.shortage,
                           i.capacity || n.capacity_override as capacity, i.revision
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
                           case when tenant_id in (select unnest($2::int[])) then tenant_id end
                           as tenant_id
                      from live
                     where status = 'running'
                       and $1
                     group by 1, 2, 5) as used
        ),
        'reserved', (
            select coalesce(json_agg(reserved), '[]')
              from (select node_id, resources, tenant_id
                      from reservations
                     where coalesce(expires_at, 'infinity') > duly.now()) as reserved
        ),
        'now', duly.now(),
        'marks', (select json_build_object('revision', revision, 'given', given) from quotas)
       )::text
