-- name: by_key
-- Return the holder of a key, which is the only way that a request's tenant is determined. The key
-- is looked up first: with few keys, the planner would scan those of every tenant instead.
--   $1 SHA-256 of the key
with held as materialized (
        select id, tenant_id, user_id, service, prefix, scopes, expires_at - duly.now() as lasts
          from keys
         where hash = $1
           and revoked_at is null
           and (expires_at is null or expires_at > duly.now())
     )
select k.id as key_id, k.user_id, u.name as "user", k.service, k.prefix, k.scopes, k.lasts,
       t.*
  from held k
  join tenants_with_plans t on t.tenant_id = k.tenant_id
  left join users u on u.id = k.user_id
 where t.removed_at is null
   and u.removed_at is null

-- name: ensure_user
-- Return the id of a tenant's user, created if it is new, and grant the user the given scopes.
--   $1 tenant, $2 user, $3 scopes
with tenant as (select id from tenants where name = $1 and removed_at is null),
     made as (
        insert into users as u (tenant_id, name, scopes)
        select id, $2, $3::text[] from tenant
            on conflict (tenant_id, name) do update
               set removed_at = null,
                   scopes = array(select unnest(u.scopes) union select unnest(excluded.scopes))
        returning id, tenant_id
     )
select id, tenant_id from made

-- name: add_key
--   $1 tenant_id, $2 user_id, $3 prefix, $4 hash, $5 scopes
insert into keys (tenant_id, user_id, prefix, hash, scopes)
values ($1, $2, $3, $4, $5::text[])
returning id

-- name: has_admin_key
-- Return whether an administrator key is valid.
select exists (
        select 1
          from keys k
          join tenants t on t.id = k.tenant_id
          left join users u on u.id = k.user_id
         where 'admin' = any(k.scopes)
           and k.revoked_at is null
           and (k.expires_at is null or k.expires_at > duly.now())
           and t.removed_at is null
           and t.suspended_at is null
           and u.removed_at is null
       )

-- name: lock_administrators
-- Serialize removals of administrators until the commit: two at once would each rely on the other's
-- key.
select pg_advisory_xact_lock(hashtextextended('duly.administrators', 0))

-- name: has_lasting_admin_key
-- Return whether an administrator key is left that does not expire soon.
select exists (
        select 1
          from keys k
          join tenants t on t.id = k.tenant_id
          left join users u on u.id = k.user_id
         where 'admin' = any(k.scopes)
           and k.revoked_at is null
           and not k.is_login
           and (k.expires_at is null or k.expires_at > duly.now() + interval '1 hour')
           and t.removed_at is null
           and t.suspended_at is null
           and u.removed_at is null
       )

-- name: plans
-- Return the names of the plans that a tenant can have.
select name from plans order by name

-- name: add
-- Insert a tenant; returns no row if the name is in use. That of a removed tenant is free.
--   $1 name, $2 plan, $3 weight; null: the plan's, $4 fair_users
insert into tenants (name, plan, weight, fair_users)
values ($1, $2, $3, $4)
    on conflict (name) where removed_at is null do nothing
returning id

-- name: read
-- Return a page of tenants, newest first.
--   $1 below this public id, $2 how many, $3 tenant_id, $4 name, $5 public_id
select t.id, t.public_id, t.name, t.plan, t.weight as weight_override, t.fair_users,
       t.created_at, t.suspended_at, coalesce(t.weight, p.weight) as weight,
       (select count(*) from users u where u.tenant_id = t.id and u.removed_at is null) as users
  from tenants t
  join plans p on p.name = t.plan
 where t.public_id < $1
   and t.removed_at is null
   and ($3::int is null or t.id = $3)
   and ($4::text is null or t.name = $4)
   and ($5::bigint is null or t.public_id = $5)
 order by t.public_id desc
 limit $2

-- name: lock
-- Lock a tenant for a change until the commit. The lock does not wait for transactions that store
-- its tasks, of which there may always be one.
--   $1 tenant_id
select id, public_id, name, plan, weight as weight_override, fair_users, created_at, suspended_at
  from tenants
 where id = $1
   and removed_at is null
   for no key update

-- name: lock_for_removal
-- Wait for all transactions that store something for a tenant, and block new ones.
--   $1 tenant_id
select id, public_id, name, plan, weight as weight_override, fair_users, created_at, suspended_at
  from tenants
 where id = $1
   and removed_at is null
   for update

-- name: hold
-- Lock a tenant against removal until the commit, and return the time; returns no row if the tenant
-- is gone. The request role may lock the row because it may update one column, which means nothing.
--   $1 tenant_id
with held as materialized (
        select id
          from tenants
         where id = $1
           and removed_at is null
           for key share
     )
select duly.now() from held

-- name: change
-- Change a locked tenant. A name that is taken fails on the unique index.
--   $1 tenant_id, $2 name, $3 plan, $4 weight; null: the plan's, $5 fair_users
update tenants
   set name = $2,
       plan = $3,
       weight = $4,
       fair_users = $5
 where id = $1

-- name: suspend
--   $1 tenant_id
update tenants
   set suspended_at = coalesce(suspended_at, duly.now())
 where id = $1

-- name: resume
--   $1 tenant_id
update tenants
   set suspended_at = null
 where id = $1

-- name: count_live
-- Count the live tasks of a tenant, up to $2.
--   $1 tenant_id, $2 how many
select count(*)
  from (select 1 from live where tenant_id = $1 limit $2) as counted

-- name: remove
-- Remove a tenant for good, with all of its keys, users, schedules and reservations.
--   $1 tenant_id
with gone as (
        update tenants
           set removed_at = duly.now(),
               suspended_at = coalesce(suspended_at, duly.now())
         where id = $1
        returning id
     ),
     keys_gone as (
        update keys k
           set revoked_at = duly.now()
          from gone
         where k.tenant_id = gone.id
           and k.revoked_at is null
        returning k.id
     ),
     users_gone as (
        update users u
           set removed_at = duly.now(),
               password_hash = null
          from gone
         where u.tenant_id = gone.id
           and u.removed_at is null
        returning u.id
     ),
     reservations_gone as (
        delete from reservations r
         using gone
         where r.tenant_id = gone.id
        returning r.id
     ),
     run_times_gone as (
        delete from run_times r
         using gone
         where r.tenant_id = gone.id
     ),
     schedules_gone as (
        delete from schedules s
         using gone
         where s.tenant_id = gone.id
        returning s.id
     )
select (select count(*) from keys_gone) as keys,
       (select count(*) from users_gone) as users,
       (select count(*) from reservations_gone) as reservations,
       (select count(*) from schedules_gone) as schedules
