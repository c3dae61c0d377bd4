-- name: read_absent
-- Return nodes that offer nothing, as their last incarnation was: down ones before removed ones, and
-- those that have been absent for the shortest time first. Workers are left out.
--   $1 how many, $2 whether only removed ones
select n.name, last.capacity || n.capacity_override as capacity, n.labels,
       case
           when n.removed_at is not null then 'removed'
           when last.end_reason = 'left' then 'stopped'
           when last.is_stopping then 'stopping'
           else 'lost'
       end as absence,
       coalesce(
           n.removed_at,
           case when last.end_reason = 'left' then last.ended_at end,
           last.renewed_at
       ) as since
  from nodes n
 cross join lateral (
        select *
          from incarnations
         where node_id = n.id
         order by id desc
         limit 1
       ) as last
 where n.tenant_id is null
   and (n.removed_at is not null
        or (not $2
            and (last.ended_at is not null or last.expires_at <= duly.now() or last.is_stopping)))
 order by n.removed_at is not null, since desc
 limit $1

-- name: add_token
-- Store a join token (as its SHA-256), which is valid until it expires.
--   $1 hash, $2 how long, $3 how many nodes it admits (null: any number)
insert into node_tokens (hash, created_at, expires_at, uses_left)
values ($1, duly.now(), duly.now() + $2::interval, $3)

-- name: find_token
-- Return the remaining uses of a token that has not expired.
--   $1 hash
select uses_left
  from node_tokens
 where hash = $1
   and expires_at > duly.now()

-- name: use_token
-- Consume one use of a token with a limited number of uses; returns no row if none is left.
-- Concurrent joins serialize on the row lock, and each sees the uses left by the previous one.
--   $1 hash
update node_tokens
   set uses_left = uses_left - 1
 where hash = $1
   and uses_left > 0
returning uses_left

-- name: add_node
-- Insert a node; returns no row if the name or the key is taken.
--   $1 name, $2 key hash, $3 labels, $4 the tenant of a worker, or null
insert into nodes (name, key_hash, labels, created_at, tenant_id)
values ($1, $2, $3::jsonb, duly.now(), $4)
    on conflict do nothing
returning id

-- name: node_by_key
--   $1 key hash
select id, name, removed_at is not null as is_removed, tenant_id
  from nodes
 where key_hash = $1

-- name: join_node
--   $1 node_id, $2 capacity, $3 labels, $4 isolation, $5 version, $6 ttl, $7 functions or null
select join_node($1, $2::jsonb, $3::jsonb, $4, $5, $6::interval, $7::text[])

-- name: note_enforcement
-- Store how a node enforces each kind of limit.
--   $1 node_id, $2 enforcement
update nodes
   set enforcement = $2::jsonb
 where id = $1

-- name: renew
-- Extend the expiry of incarnations, and return those that have not ended. An expired incarnation
-- may still renew: it is fenced by being ended, not by the clock. An incarnation that has announced
-- its stop cannot revoke it. Another number of slots is another offer, so the revision rises.
--   $1 incarnation ids, $2 node ids, $3 whether they stop, $4 what they are short of, $5 ttl,
--   $6 how many slots workers offer, or null
update incarnations
   set renewed_at = duly.now(),
       expires_at = duly.now() + $5::interval,
       is_stopping = is_stopping or given.stops,
       shortage = given.shortage,
       capacity = case
           when functions is null or given.slots is null then capacity
           else jsonb_build_object('extra', jsonb_build_object('slots', given.slots))
       end,
       revision = revision + case
           when functions is null or given.slots is null then 0
           else (given.slots is distinct from (capacity -> 'extra' ->> 'slots')::int)::int
       end
  from unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::text[], $6::int[])
    as given (id, node_id, stops, shortage, slots)
 where incarnations.id = given.id
   and incarnations.id = any($1)
   and incarnations.node_id = given.node_id
   -- Not `ended_at is null`, which could be planned as a scan of all live incarnations.
   and coalesce(ended_at, 'infinity') = 'infinity'
returning incarnations.id

-- name: lock_incarnation
-- Lock an incarnation against concurrent leases on it.
--   $1 incarnation_id, $2 node_id
select id
  from incarnations
 where id = $1
   and node_id = $2
   and ended_at is null
   for update

-- name: end_incarnation
--   $1 incarnation_id, $2 reason
update incarnations
   set ended_at = duly.now(),
       end_reason = $2
 where id = $1
   and ended_at is null

-- name: name_of
--   $1 node_id
select name
  from nodes
 where id = $1

-- name: drain
-- Start or stop draining a node; returns null if there is no such node.
--   $1 node_id, $2 draining
select drain_node($1, $2)

-- name: remove
-- Remove a node for good, and end its incarnation; returns null if there is no such node.
--   $1 node_id
select remove_node($1)

-- name: override_capacity
-- Override the capacity that an agent reports, kind by kind; returns null if there is no such node.
--   $1 node_id, $2 kinds
select override_capacity($1, $2::jsonb)

-- name: read_expected
-- Return the attempts that an incarnation should be running, which is what a poll is answered from.
-- Attempts up to token $3 are looked up by task id, and only those in $4. All stopping attempts are
-- returned. A row without an id means that there are none; no row, that the incarnation has ended.
--   $1 incarnation_id, $2 node_id, $3 above this token, $4 task ids
select l.id, l.attempt, l.token,
       l.cancel_requested_at is not null as is_cancelled,
       coalesce(l.kill_at <= duly.now(), false) as is_overdue,
       l.is_marked
  from incarnations i
  left join lateral (
        select id, attempt, token, cancel_requested_at, kill_at, false as is_marked
          from live
         where status = 'running'
           and incarnation_id = i.id
           and token > $3
         union all
        select id, attempt, token, cancel_requested_at, kill_at, false
          from live
         where id = any($4::bigint[])
           and incarnation_id = i.id
           and token <= $3
         union all
        select task_id, attempt, token, null, null, true
          from stopping_attempts
         where incarnation_id = i.id
       ) as l on true
 where i.id = $1
   and i.node_id = $2
   and i.ended_at is null

-- name: read_starts
-- Return what an agent needs to start the attempts leased to its incarnation.
--   $1 incarnation_id, $2 task ids
select l.id, l.attempt, l.token, l.execution_cap, t.payload, s.needs, l.tenant_id,
       coalesce(t.idempotency_key, l.id::text) as idempotency_key
  from live l
 cross join lateral (
        select payload, idempotency_key from tasks where tasks.id = l.id offset 0
       ) as t
 cross join lateral (
        select needs from shapes where shapes.id = l.shape_id offset 0
       ) as s
 where l.id = any($2::bigint[])
   and l.incarnation_id = $1
   and l.cancel_requested_at is null

-- name: holds_attempt
-- Return whether a node still holds an attempt, before anything is stored on its behalf. Only a
-- running row has a token, so `status` is not checked: that condition would allow a scan of the
-- index of all running rows.
--   $1 node_id, $2 task_id, $3 attempt, $4 token
select exists (
        select 1
          from live
         where id = $2
           and attempt = $3
           and token = $4
           and node_id = $1
       )

-- name: extend_backstop
-- Postpone `kill_at` of a node's attempts that have not begun, to leave the full execution cap from
-- now on plus the backstop, and some slack, so that it is not written each time. Rows locked by
-- other transactions are left for the next call.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens, $5 backstop, $6 slack, $7 longest
with late as materialized (
        select held.id, held.kill_at
          from unnest($2::bigint[], $3::int[], $4::bigint[]) as named (task, attempt, token)
         cross join lateral (
                select l.id,
                       least(duly.now() + $6::interval, l.leased_at + $7::interval)
                       + l.execution_cap + $5::interval as kill_at
                  from live l
                 where l.id = named.task
                   and l.attempt = named.attempt
                   and l.token = named.token
                   and l.node_id = $1
                   and l.kill_at < least(duly.now(), l.leased_at + $7::interval)
                                   + l.execution_cap + $5::interval
                   for no key update skip locked
               ) as held
     )
update live
   set kill_at = late.kill_at
  from late
 where live.id = any(array(select id from late))
   and live.id = late.id

-- name: read_records
-- Count the failures, losses and joins of each node since $1 ago. At most the latest 10,000
-- attempts are read, which bounds the cost on a bad day.
--   $1 how long
with since as materialized (select duly.now() - $1::interval as at),
     wrong as materialized (
        select node_id, task_id, outcome
          from attempts
         where outcome in ('failed', 'lost')
           and finished_at >= (select at from since)
           -- What a task calls has throttled it, whichever node it ran on.
           and coalesce(reason ->> 'code', '') <> 'throttled'
         order by finished_at desc
         limit 10000
     ),
     counts as (
        select node_id,
               count(distinct task_id) filter (where outcome = 'failed') as failures,
               count(*) filter (where outcome = 'lost') as losses,
               0 as joins
          from wrong
         group by node_id
         union all
        select node_id, 0, 0, count(*)
          from incarnations
         where started_at >= (select at from since)
         group by node_id
     )
select node_id, sum(failures)::int as failures, sum(losses)::int as losses, sum(joins)::int as joins
  from counts
 group by node_id
