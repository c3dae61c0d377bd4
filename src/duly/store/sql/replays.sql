-- name: read_cancelled_downstream
-- Return an ended task, and those that were cancelled because of it, directly or transitively, and
-- whether edges of each are still to be resolved. All in one snapshot: the dependants of a task
-- whose edges are resolved have ended, or go on.
--   $1 tenant_id, $2 id, $3 how many
with recursive lost as (
        select $2::bigint as id
         union all
        select edge.dependant_id
          from lost
         cross join lateral (
                select e.dependant_id
                  from edges e
                 where e.upstream_id = lost.id
                   and e.dependant_id > lost.id - (3600::bigint << 31)
                   and e.dependant_id + 0 > lost.id - (3600::bigint << 31)
                   and e.tenant_id = $1
                 order by e.dependant_id + 0
               ) as edge
         cross join lateral (
                select 1
                  from ends n
                 where n.task_id = edge.dependant_id
                   and n.tenant_id = $1
                   and n.status = 'cancelled'
                   and n.reason ->> 'code' = 'upstream_failed'
                   and n.reason #>> '{details,upstream}' = lost.id::text
                offset 0
               ) as was_cancelled
     )
select lost.id,
       exists (
        select 1 from ended_upstreams u where u.task_id = lost.id and u.tenant_id = $1 offset 0
       ) as is_untold
  from lost
 limit $3

-- name: read_upstreams
-- Return the upstreams of tasks, whether each has met its condition (null if it is live), and its
-- ref if the edge names it by ref. Upstreams that are no longer stored are left out.
--   $1 tenant_id, $2 task ids
select edge.dependant_id, edge.upstream_id, edge.condition,
       is_met(edge.condition, upstream.status) as is_met,
       case
           when edge.by_ref
           then (select t.ref from tasks t where t.id = edge.upstream_id and t.tenant_id = $1)
       end as ref
  from unnest($2::bigint[]) as asked (id)
 cross join lateral (
        select e.dependant_id, e.upstream_id, e.condition, e.by_ref
          from edges e
         where e.dependant_id = asked.id
           and e.tenant_id = $1
        offset 0
       ) as edge
 cross join lateral (
        select n.status from ends n where n.task_id = edge.upstream_id and n.tenant_id = $1
         union all
        select null from live l where l.id = edge.upstream_id and l.tenant_id = $1
         limit 1
       ) as upstream

-- name: read_replays
-- Return the last replay of tasks that have been replayed, following replays of replays.
--   $1 tenant_id, $2 task ids
with recursive replays as (
        select asked.id as task_id, asked.id, 0 as times
          from unnest($2::bigint[]) as asked (id)
         union all
        select replays.task_id, next.id, replays.times + 1
          from replays
         cross join lateral (
                select (v.details ->> 'task')::bigint as id
                  from events v
                 where v.task_id = replays.id
                   and v.tenant_id = $1
                   and v.kind = 'replayed'
                 order by v.id desc
                 limit 1
               ) as next
         where replays.times < 1000
     )
select distinct on (replays.task_id) replays.task_id, replays.id
  from replays
 cross join lateral (
        select 1 from tasks t where t.id = replays.id and t.tenant_id = $1 offset 0
       ) as is_known
 where replays.times > 0
 order by replays.task_id, replays.times desc

-- name: read_graph_name
--   $1 tenant_id, $2 task_id
select g.name
  from tasks t
  join graphs g on g.id = t.graph_id
 where t.id = $2
   and t.tenant_id = $1
