-- name: add
--   $1 tenant_id, $2 user_id, $3 service, $4 name, $5 prefix, $6 hash, $7 scopes, $8 lasts,
--   $9 created_by, $10 whether it comes of a login
insert into keys (tenant_id, user_id, service, name, prefix, hash, scopes, expires_at, created_by,
                  is_login)
values ($1, $2, $3, $4, $5, $6, $7::text[], duly.now() + $8::interval, $9, $10)
returning id

-- name: read
-- Return a page of a tenant's keys, newest first.
--   $1 tenant_id, $2 below this id, $3 how many, $4 key_id, $5 prefix, $6 user, $7 service,
--   $8 whether to include those that are revoked or have expired
select k.id, k.prefix, k.name, u.name as "user", k.service, k.scopes, k.created_at, k.created_by,
       k.expires_at, k.revoked_at, k.is_login, k.expires_at <= duly.now() as has_expired
  from keys k
  left join users u on u.id = k.user_id
 where k.tenant_id = $1
   and k.id < $2
   and ($4::bigint is null or k.id = $4)
   and ($5::text is null or k.prefix = $5)
   and ($6::text is null or u.name = $6)
   and ($7::text is null or k.service = $7)
   and ($8 or (k.revoked_at is null and coalesce(k.expires_at, 'infinity') > duly.now()))
 order by k.id desc
 limit $3

-- name: lock
-- Lock a key for a change until the commit.
--   $1 tenant_id, $2 key_id, $3 prefix
select k.id, k.prefix, k.name, k.scopes, k.expires_at, k.revoked_at, k.is_login,
       k.expires_at <= duly.now() as has_expired, u.scopes as user_scopes
  from keys k
  left join users u on u.id = k.user_id
 where k.tenant_id = $1
   and ($2::bigint is null or k.id = $2)
   and ($3::text is null or k.prefix = $3)
   for update of k

-- name: change
-- Change the scopes, name and expiry of a key.
--   $1 key_id, $2 name, $3 scopes, $4 whether its end stays, $5 or how long it lasts from now
update keys
   set name = $2,
       scopes = $3::text[],
       expires_at = case when $4 then expires_at else duly.now() + $5::interval end
 where id = $1
   and revoked_at is null
returning name, scopes, expires_at

-- name: revoke
--   $1 key_id
update keys
   set revoked_at = duly.now()
 where id = $1
   and revoked_at is null
returning id

-- name: end_login
-- Revoke a key that was issued by a login.
--   $1 key_id
update keys
   set revoked_at = duly.now()
 where id = $1
   and is_login
   and revoked_at is null
returning id

-- name: prune_logins
-- Delete the ended logins of a user, and end all but the newest.
--   $1 user_id, $2 how many are left
with ended as (
        delete from keys
         where user_id = $1
           and is_login
           and (revoked_at is not null or expires_at <= duly.now())
     )
update keys
   set revoked_at = duly.now()
 where id in (
        select id
          from keys
         where user_id = $1
           and is_login
           and revoked_at is null
           and expires_at > duly.now()
         order by id desc
        offset $2
       )
