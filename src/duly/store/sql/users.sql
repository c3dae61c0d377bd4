-- name: read
-- Return a page of a tenant's users, newest first.
--   $1 tenant_id, $2 below this public id, $3 how many, $4 user_id, $5 name, $6 public_id
select u.id, u.public_id, u.name, u.scopes, u.has_password, u.created_at,
       (select count(*)
          from keys k
         where k.user_id = u.id
           and not k.is_login
           and k.revoked_at is null
           and (k.expires_at is null or k.expires_at > duly.now())) as keys
  from users u
 where u.tenant_id = $1
   and u.public_id < $2
   and u.removed_at is null
   and ($4::int is null or u.id = $4)
   and ($5::text is null or u.name = $5)
   and ($6::bigint is null or u.public_id = $6)
 order by u.public_id desc
 limit $3

-- name: add
-- Insert a user, or restore a removed one without anything it had; returns no row if the name is in
-- use. The hash is not taken from `excluded`, which would require the privilege to read it.
--   $1 tenant_id, $2 name, $3 scopes, $4 password_hash
insert into users as u (tenant_id, name, scopes, password_hash)
values ($1, $2, $3::text[], $4)
    on conflict (tenant_id, name) do update
       set removed_at = null,
           created_at = duly.now(),
           scopes = excluded.scopes,
           password_hash = $4
     where u.removed_at is not null
returning id

-- name: lock
-- Lock a user for a change until the commit.
--   $1 tenant_id, $2 user_id, $3 name
select id, public_id, name, scopes, created_at,
       array(
        select distinct unnest(k.scopes)
          from keys k
         where k.user_id = users.id
           and k.revoked_at is null
           and (k.expires_at is null or k.expires_at > duly.now())
       ) as key_scopes
  from users
 where tenant_id = $1
   and removed_at is null
   and ($2::int is null or id = $2)
   and ($3::text is null or name = $3)
   for update

-- name: change_scopes
--   $1 user_id, $2 scopes
update users
   set scopes = $2::text[]
 where id = $1

-- name: narrow_keys
-- Remove scopes that a user no longer holds from its keys; a key without scopes left is revoked.
--   $1 user_id, $2 scopes
update keys k
   set scopes = left_over.scopes,
       revoked_at = case when left_over.scopes = '{}' then duly.now() end
  from (
        select id, array(select unnest(scopes) intersect select unnest($2::text[])) as scopes
          from keys
         where user_id = $1
           and revoked_at is null
           and not scopes <@ $2::text[]
       ) as left_over
 where k.id = left_over.id
returning k.id

-- name: change_password
--   $1 user_id, $2 password_hash (none is no more password)
update users
   set password_hash = $2
 where id = $1

-- name: end_logins
-- Revoke the keys of logins with a user's password.
--   $1 user_id
update keys
   set revoked_at = duly.now()
 where user_id = $1
   and is_login
   and revoked_at is null

-- name: remove
-- Remove a user with its password, and revoke its keys.
--   $1 user_id
with gone as (
        update users
           set removed_at = duly.now(),
               password_hash = null
         where id = $1
        returning id
     )
update keys k
   set revoked_at = duly.now()
  from gone
 where k.user_id = gone.id
   and k.revoked_at is null
returning k.id

-- name: lock_login
-- Lock a user who logs in against changes until the commit.
--   $1 user_id
select u.id, u.name, u.tenant_id, t.name as tenant, u.scopes, u.password_hash
  from users u
  join tenants t on t.id = u.tenant_id
 where u.id = $1
   and u.removed_at is null
   and t.removed_at is null
   for update of u

-- name: read_password_hash
-- Return the hash that a password is checked against.
--   $1 tenant, $2 user
select u.id, u.password_hash
  from tenants t
  join users u on u.tenant_id = t.id
 where t.name = $1
   and u.name = $2
   and t.removed_at is null
   and u.removed_at is null
   and u.password_hash is not null
