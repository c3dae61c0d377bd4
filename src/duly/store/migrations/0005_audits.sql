-- serves: 0003

-- What the self-audit has found, for every server to tell: the last complete round of each
-- scope. `drift` has for each kind how many there are and a few ids of them.
create table audits (
    scope         text primary key,
    completed_at  timestamptz not null,
    took          interval not null,
    looked_at     bigint not null,
    drift         jsonb not null,
    repaired      bigint not null,
    repaired_at   timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
