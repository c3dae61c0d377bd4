-- name: record
-- Store a node's measurements of attempts that it still holds. The first reported start is kept,
-- and a missing amount leaves the previous one. A row locked by another transaction is about to
-- change or to end, and is left for the next report.
--   $1 node_id, $2 task ids, $3 attempts, $4 tokens, $5 for how many seconds each has run,
--   $6 cpu_seconds, $7 peak_memory_mb
with measured as materialized (
        select held.id, held.is_known, held.since, told.cpu_seconds, told.peak_memory_mb
          from unnest(
                $2::bigint[], $3::int[], $4::bigint[], $5::float8[], $6::real[], $7::real[]
               ) as told (task, attempt, token, ran, cpu_seconds, peak_memory_mb)
         cross join lateral (
                select l.id,
                       coalesce(l.measured_token = l.token, false) as is_known,
                       greatest(
                        l.leased_at, duly.now() - told.ran * interval '1 second'
                       ) as since
                  from live l
                 where l.id = told.task
                   and l.attempt = told.attempt
                   and l.token = told.token
                   and l.node_id = $1
                   for no key update skip locked
               ) as held
     )
update live
   set measured_token = token,
       running_since = case when is_known then running_since else since end,
       cpu_seconds = coalesce(
        measured.cpu_seconds, case when is_known then live.cpu_seconds end
       ),
       peak_memory_mb = coalesce(
        measured.peak_memory_mb, case when is_known then live.peak_memory_mb end
       )
  from measured
 where live.id = any(array(select id from measured))
   and live.id = measured.id
