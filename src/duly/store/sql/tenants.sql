-- name: by_key
-- Return who holds a key: the only way in which a tenant is ever chosen.
--   $1 SHA-256 of the key
select k.id as key_id, k.user_id, u.name as "user", k.service, k.prefix, k.scopes, t.*
  from (select *
          from keys
         where hash = $1
           and revoked_at is null
           and (expires_at is null or expires_at > duly.now())
        offset 0) as k
  join tenants_with_plans t on t.tenant_id = k.tenant_id
  left join users u on u.id = k.user_id
 where t.removed_at is null
   and u.removed_at is null

-- name: ensure_user
-- Return the id of a tenant's user, and make it if it is new.
--   $1 tenant, $2 user
with tenant as (select id from tenants where name = $1),
     made as (
        insert into users (tenant_id, name)
        select id, $2 from tenant
            on conflict (tenant_id, name) do update set name = excluded.name
        returning id, tenant_id
     )
select id, tenant_id from made

-- name: add_key
--   $1 tenant_id, $2 user_id, $3 prefix, $4 hash, $5 scopes
insert into keys (tenant_id, user_id, prefix, hash, scopes)
values ($1, $2, $3, $4, $5::text[])
returning id

-- name: has_admin_key
-- Say whether any administrator's key is valid.
select exists (
        select 1
          from keys
         where 'admin' = any(scopes)
           and revoked_at is null
           and (expires_at is null or expires_at > duly.now())
       )
