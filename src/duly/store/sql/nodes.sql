-- name: add_token
-- Store a join token (as its SHA-256) that may be used until it expires.
--   $1 hash, $2 how long, $3 how many nodes it admits (null: any number)
insert into node_tokens (hash, created_at, expires_at, uses_left)
values ($1, duly.now(), duly.now() + $2::interval, $3)

-- name: find_token
-- Return what is left of a token that has not expired.
--   $1 hash
select uses_left
  from node_tokens
 where hash = $1
   and expires_at > duly.now()

-- name: use_token
-- Take one of the uses of a token that admits so many nodes; no row comes back when none is left.
-- Concurrent joins wait for each other here, and each sees what the one before has left.
--   $1 hash
update node_tokens
   set uses_left = uses_left - 1
 where hash = $1
   and uses_left > 0
returning uses_left

-- name: add_node
-- Make a node; no row comes back when the name or the key is taken.
--   $1 name, $2 key hash, $3 labels
insert into nodes (name, key_hash, labels, created_at)
values ($1, $2, $3::jsonb, duly.now())
    on conflict do nothing
returning id

-- name: node_by_key
--   $1 key hash
select id, name, removed_at is not null as is_removed
  from nodes
 where key_hash = $1

-- name: join_node
--   $1 node_id, $2 capacity, $3 labels, $4 isolation, $5 version, $6 ttl
select join_node($1, $2::jsonb, $3::jsonb, $4, $5, $6::interval)

-- name: note_enforcement
-- Keep how a node enforces each kind of limit.
--   $1 node_id, $2 enforcement
update nodes
   set enforcement = $2::jsonb
 where id = $1

-- name: renew
-- Push back the expiry of incarnations, and return those that have not been ended. One whose
-- time has run out may still renew: what fences it is being ended, not the clock.
-- One that has said that it stops is not believed when it says otherwise afterwards.
--   $1 incarnation ids, $2 node ids, $3 whether they stop, $4 what they are short of, $5 ttl
update incarnations
   set renewed_at = duly.now(),
       expires_at = duly.now() + $5::interval,
       is_stopping = is_stopping or given.stops,
       shortage = given.shortage
  from unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::text[])
    as given (id, node_id, stops, shortage)
 where incarnations.id = given.id
   and incarnations.id = any($1)
   and incarnations.node_id = given.node_id
   -- Not `ended_at is null`: then an index of all that are alive could be walked instead.
   and coalesce(ended_at, 'infinity') = 'infinity'
returning incarnations.id

-- name: lock_incarnation
-- Lock an incarnation against leases that are being made on it.
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
-- Begin or end the draining of a node; null when there is no such node.
--   $1 node_id, $2 draining
select drain_node($1, $2)

-- name: remove
-- Take a node away for good, and end its incarnation; null when there is no such node.
--   $1 node_id
select remove_node($1)

-- name: override_capacity
-- Say what a node has, kind by kind, whatever its agent says; null when there is no such node.
--   $1 node_id, $2 kinds
select override_capacity($1, $2::jsonb)

-- name: read_held
-- Return what an incarnation should be running: the truth that a poll is answered from. Of
-- what came up to a token, only the tasks that are named are looked up, each by its id. A row
-- without an id says that there is nothing; no row, that the incarnation has ended.
--   $1 incarnation_id, $2 node_id, $3 above this token, $4 task ids
select l.id, l.attempt, l.token,
       l.cancel_requested_at is not null as is_cancelled,
       l.kill_at <= duly.now() as is_overdue
  from incarnations i
  left join lateral (
        select id, attempt, token, cancel_requested_at, kill_at
          from live
         where status = 'running'
           and incarnation_id = i.id
           and token > $3
         union all
        select id, attempt, token, cancel_requested_at, kill_at
          from live
         where id = any($4::bigint[])
           and incarnation_id = i.id
           and token <= $3
       ) as l on true
 where i.id = $1
   and i.node_id = $2
   and i.ended_at is null

-- name: read_assignments
-- Return what an agent needs to start attempts on an incarnation of its own.
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
-- Say whether an attempt is still this node's: asked before anything is kept on its account.
-- Only a running row has a token, so `status` need not be asked; asked for, it would let the
-- index of all running rows be walked.
--   $1 node_id, $2 task_id, $3 attempt, $4 token
select exists (
        select 1
          from live
         where id = $2
           and attempt = $3
           and token = $4
           and node_id = $1
       )

-- name: prolong
-- Put off when attempts of a node are to be killed that have not begun: until there is all of the
-- cap from now on, and the backstop, and some slack, so that it is not written each time. What
-- somebody else has locked is left for the next time.
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
-- Count by node what went wrong since $1 ago, and how often its agent has joined. No more
-- than the latest 10,000 attempts are looked at, so that a bad day costs no more than others.
--   $1 how long
with since as materialized (select duly.now() - $1::interval as at),
     wrong as materialized (
        select node_id, task_id, outcome
          from attempts
         where outcome in ('failed', 'lost')
           and finished_at >= (select at from since)
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
