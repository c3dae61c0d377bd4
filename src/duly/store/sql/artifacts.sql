-- name: read_artifact
--   $1 tenant_id, $2 sha256
select id, sha256, bytes, blob, created_at, last_used_at
  from artifacts
 where tenant_id = $1
   and sha256 = $2

-- name: read_artifacts
-- Return a page of a tenant's artifacts, newest first. Being needed counts as a use, at the time
-- that the id of the task or schedule was minted.
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

-- name: lock_uploads
-- Prevent other transactions from adding artifacts of a tenant until the commit.
--   $1 tenant_id
select pg_advisory_xact_lock(hashtext('duly.artifacts'), $1::int)

-- name: count_bytes
-- Return the total size of a tenant's artifacts, each counted as at least $2 bytes.
--   $1 tenant_id, $2 the least
select coalesce(sum(greatest(bytes, $2::bigint)), 0)::bigint
  from artifacts
 where tenant_id = $1

-- name: add_artifact
--   $1 id, $2 tenant_id, $3 sha256, $4 bytes
insert into artifacts (id, tenant_id, sha256, bytes, blob, created_at, last_used_at)
values ($1, $2, $3, $4, $1, duly.now(), duly.now())

-- name: move_artifact
-- Store the new blob of an artifact.
--   $1 id, $2 blob
update artifacts
   set blob = $2,
       last_used_at = duly.now()
 where id = $1

-- name: add_uses
-- Record which tasks or schedules need which artifacts, and return the hashes that the tenant does
-- not have. A concurrent deletion has locked its row: the statement waits, and then does not find
-- it.
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
-- Delete the uses of a task or schedule that needs no artifact any more, or others from now on; its
-- artifacts were used until now. The artifacts are locked before their uses, as in a removal.
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
-- Record that an artifact is about to be used, unless that was recorded less than $3 ago; returns
-- false if the artifact is gone.
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
-- Lock an artifact, so that no use of it can be added.
--   $1 tenant_id, $2 sha256
select id, sha256, bytes, blob, created_at, last_used_at
  from artifacts
 where tenant_id = $1
   and sha256 = $2
   for update

-- name: read_user
-- Return one task or schedule that needs a locked artifact, and whether it is a schedule. A
-- separate statement, whose snapshot includes what was committed before the lock was granted.
--   $1 artifact_id
select u.used_by, exists (select 1 from schedules s where s.id = u.used_by) as is_schedule
  from artifact_uses u
 where u.artifact_id = $1
   and needs_artifact(u.used_by)
 order by u.used_by desc
 limit 1

-- name: remove_artifact
-- Delete a locked artifact that is not needed.
--   $1 id
with unused as (
        delete from artifact_uses where artifact_id = $1
     )
delete from artifacts
 where id = $1

-- name: read_leased
-- Return the artifact of a task that is leased to a node, checked by the complete fence. Returns
-- nulls if the artifact is gone, and no row if there is no such attempt or it needs no artifact.
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

-- name: drop_ended_uses
-- Delete uses that have ended, and record that their artifacts were used until now. Reads $2 uses
-- in id order, and returns the last id. An artifact is locked before its uses, as in a removal.
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
-- Lock unneeded artifacts that have not been used for their retention, or whose tenants are gone.
-- An artifact to which a use is just being added is locked, and is skipped.
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
-- Delete locked artifacts, except those needed after all, and return their blobs. A separate
-- statement, whose snapshot includes uses added before the lock was granted.
--   $1 ids
delete from artifacts a
 where a.id = any($1::bigint[])
   and not exists (select 1 from artifact_uses u where u.artifact_id = a.id)
returning a.tenant_id, a.bytes, a.blob

-- name: read_referenced_blobs
-- Return which of these blobs belong to an artifact.
--   $1 names
select blob
  from artifacts
 where blob = any($1::bigint[])
