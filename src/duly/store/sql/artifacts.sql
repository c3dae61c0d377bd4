-- name: read_artifact
--   $1 tenant_id, $2 sha256
select id, sha256, bytes, blob, created_at, last_used_at
  from artifacts
 where tenant_id = $1
   and sha256 = $2

-- name: read_artifacts
-- Return a page of a tenant's artifacts, newest first. Whoever needs one uses it: ids tell when
-- they were minted.
--   $1 tenant_id, $2 below this id, $3 how many, $4 the one with this hash
select a.id, a.sha256, a.bytes, a.blob, a.created_at,
       greatest(
        a.last_used_at,
        timestamptz '2026-01-01 00:00:00+00'
        + ((select max(u.used_by) from artifact_uses u where u.artifact_id = a.id) >> 31)
          * interval '1 second'
       ) as last_used_at
  from artifacts a
 where a.tenant_id = $1
   and a.id < $2
   and ($4::bytea is null or a.sha256 = $4)
 order by a.id desc
 limit $3

-- name: lock_artifacts
-- Let nobody else add an artifact of a tenant before the commit.
--   $1 tenant_id
select pg_advisory_xact_lock(hashtext('duly.artifacts'), $1::int)

-- name: count_bytes
-- Return how many bytes the artifacts of a tenant take up, each at least $2.
--   $1 tenant_id, $2 the least
select coalesce(sum(greatest(bytes, $2::bigint)), 0)::bigint
  from artifacts
 where tenant_id = $1

-- name: add_artifact
--   $1 id, $2 tenant_id, $3 sha256, $4 bytes
insert into artifacts (id, tenant_id, sha256, bytes, blob, created_at, last_used_at)
values ($1, $2, $3, $4, $1, duly.now(), duly.now())

-- name: move_artifact
-- Say where the bytes of an artifact are from now on.
--   $1 id, $2 blob
update artifacts
   set blob = $2,
       last_used_at = duly.now()
 where id = $1

-- name: use_artifacts
-- Note who needs which artifacts, and return those hashes that the tenant does not have. Whoever
-- deletes one has locked its row: that is waited for, and what is gone then is not found.
--   $1 tenant_id, $2 hashes, $3 who uses it, one for each
with held as materialized (
        select a.id, a.sha256
          from artifacts a
         where a.tenant_id = $1
           and a.sha256 = any($2::bytea[])
         order by a.id
           for key share
     ),
     noted as (
        insert into artifact_uses (artifact_id, used_by, tenant_id)
        select held.id, given.used_by, $1
          from unnest($2::bytea[], $3::bigint[]) as given (sha256, used_by)
         cross join lateral (
                select id from held where held.sha256 = given.sha256 limit 1
               ) as held
            on conflict do nothing
     )
select distinct given.sha256
  from unnest($2::bytea[]) as given (sha256)
 where given.sha256 not in (select sha256 from held)

-- name: drop_uses
-- Note that somebody needs none any more, or others from now on; it used these until now. They
-- are locked before their uses are taken away, as by whoever removes one.
--   $1 tenant_id, $2 used_by
with used as materialized (
        select id
          from artifacts
         where tenant_id = $1
           and id = any(array(select artifact_id from artifact_uses where used_by = $2))
         order by id
           for no key update
     ),
     gone as (
        delete from artifact_uses
         where used_by = $2
           and tenant_id = $1
     )
update artifacts
   set last_used_at = duly.now()
 where id = any(array(select id from used))

-- name: touch_artifact
-- Note that somebody means to use an artifact soon, unless that was noted a short while ago; false
-- when it is gone by now.
--   $1 tenant_id, $2 id, $3 how short
with touched as (
        update artifacts
           set last_used_at = duly.now()
         where tenant_id = $1
           and id = $2
           and last_used_at <= duly.now() - $3::interval
        returning 1
     )
select exists (select 1 from touched)
       or exists (
        select 1
          from artifacts
         where tenant_id = $1
           and id = $2
           and last_used_at > duly.now() - $3::interval
       )

-- name: lock_artifact
-- Lock an artifact, so that nobody begins to need it.
--   $1 tenant_id, $2 sha256
select id, sha256, bytes, blob, created_at, last_used_at
  from artifacts
 where tenant_id = $1
   and sha256 = $2
   for update

-- name: read_user
-- Return one of those that need a locked artifact, and whether that is a schedule. In a statement
-- of its own, which sees what was committed before the lock was given.
--   $1 artifact_id
select u.used_by, exists (select 1 from schedules s where s.id = u.used_by) as is_schedule
  from artifact_uses u
 where u.artifact_id = $1
   and needs_artifact(u.used_by)
 order by u.used_by desc
 limit 1

-- name: remove_artifact
-- Remove a locked artifact that nobody needs.
--   $1 id
with unused as (
        delete from artifact_uses where artifact_id = $1
     )
delete from artifacts
 where id = $1

-- name: read_leased
-- Return the artifact of a task that is leased to a node now, by all of its fence; nulls if it
-- is gone, and no row if there is no such attempt, or it needs none.
--   $1 node_id, $2 task_id, $3 attempt, $4 token
select l.tenant_id, a.bytes, a.blob
  from live l
 cross join lateral (
        select t.payload ->> 'artifact' as artifact from tasks t where t.id = l.id offset 0
       ) as task
  left join lateral (
        select bytes, blob
          from artifacts
         where artifacts.tenant_id = l.tenant_id
           and artifacts.sha256 = decode(task.artifact, 'hex')
        offset 0
       ) as a on true
 where l.id = $2
   and l.attempt = $3
   and l.token = $4
   and l.node_id = $1
   and task.artifact is not null

-- name: settle_uses
-- Forget that somebody needed artifacts who does not any more, and note that these were used
-- until now. Goes through some of them, by their ids; returns the last one. An artifact is locked
-- before its uses are taken away, as by whoever removes it.
--   $1 above this id, $2 how many
with seen as materialized (
        select artifact_id, used_by
          from artifact_uses
         where used_by > $1
         order by used_by
         limit $2
     ),
     over as materialized (
        select artifact_id, used_by from seen where not needs_artifact(used_by)
     ),
     locked as materialized (
        select a.id
          from artifacts a
         where a.id = any(array(select artifact_id from over))
         order by a.id
           for no key update
     ),
     gone as (
        delete from artifact_uses u
         using over
         where u.artifact_id = over.artifact_id
           and u.used_by = over.used_by
           and u.artifact_id in (select id from locked)
     ),
     used as (
        update artifacts
           set last_used_at = duly.now()
         where id = any(array(select id from locked))
     )
select max(used_by) from seen

-- name: lock_expired
-- Lock artifacts that were not used for so long, or whose tenants are gone, and that nobody
-- needs. Whoever begins to need one just now has locked it, and is left alone.
--   $1 how long, $2 how many
select a.id
  from artifacts a
 where a.last_used_at < duly.now() - coalesce((
        select least($1::interval, p.retention)
          from tenants t
          join plans p on p.name = t.plan
         where t.id = a.tenant_id
           and t.removed_at is null
       ), interval '0')
   and not exists (select 1 from artifact_uses u where u.artifact_id = a.id)
 order by a.last_used_at
 limit $2
   for update skip locked

-- name: remove_expired
-- Remove locked artifacts, except those that somebody needs after all, and return their bytes'
-- names. A statement of its own sees who came before the lock was given.
--   $1 ids
delete from artifacts a
 where a.id = any($1::bigint[])
   and not exists (select 1 from artifact_uses u where u.artifact_id = a.id)
returning a.tenant_id, a.bytes, a.blob

-- name: known_blobs
-- Return those of some names that stand for the bytes of an artifact.
--   $1 names
select blob
  from artifacts
 where blob = any($1::bigint[])
