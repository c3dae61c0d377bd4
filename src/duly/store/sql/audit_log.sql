-- name: record
--   $1 tenant_id, $2 actor, $3 action, $4 target, $5 details
insert into audit_log (tenant_id, actor, action, target, details)
values ($1, $2, $3, $4, $5::jsonb)

-- name: read
-- Return a page of what was done, newest first.
--   $1 tenant_id (all if null), $2 below this id, $3 how many, $4 actor, $5 action, $6 since
select a.id, a.at, t.name as tenant, a.actor, a.action, a.target, a.details
  from audit_log a
  left join tenants t on t.id = a.tenant_id
 where a.id < $2
   and ($1::int is null or a.tenant_id = $1)
   and ($4::text is null or a.actor = $4)
   and ($5::text is null or a.action = $5)
   and ($6::timestamptz is null or a.at >= $6)
 order by a.id desc
 limit $3
