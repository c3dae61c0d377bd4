-- name: record
--   $1 tenant_id, $2 actor, $3 action, $4 target, $5 details
insert into audit_log (tenant_id, actor, action, target, details)
values ($1, $2, $3, $4, $5::jsonb)

-- name: read
-- Return a page of the audit log, newest first.
--   $1 below this id, $2 how many, $3 actor, $4 action, $5 since
select a.id, a.at, t.name as tenant, a.actor, a.action, a.target, a.details
  from audit_log a
  left join tenants t on t.id = a.tenant_id
 where a.id < $1
   and ($3::text is null or a.actor = $3)
   and ($4::text is null or a.action = $4)
   and ($5::timestamptz is null or a.at >= $5)
 order by a.id desc
 limit $2

-- name: read_of_tenant
-- Return a page of one tenant's audit log, newest first. It has an index of its own, so that the
-- entries of other tenants do not slow it down.
--   $1 below this id, $2 how many, $3 actor, $4 action, $5 since, $6 tenant_id
select a.id, a.at, t.name as tenant, a.actor, a.action, a.target, a.details
  from audit_log a
  left join tenants t on t.id = a.tenant_id
 where a.tenant_id = $6
   and a.id < $1
   and ($3::text is null or a.actor = $3)
   and ($4::text is null or a.action = $4)
   and ($5::timestamptz is null or a.at >= $5)
 order by a.id desc
 limit $2
