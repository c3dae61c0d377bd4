-- serves: 0003

-- Ids that tenants see tell when a thing was made, as those of tasks do, and not how many there are
-- of its kind: a number from a sequence would tell each tenant what all the others have made.

-- Return the second since 2026, the fraction of it to a 2**20th, and 11 random bits, which keep
-- apart what is made at the same moment. Not by duly.now(): nothing is decided by an id, and where
-- that clock is made to stand still, the order of ids is still that of insertion.
create function clock_id() returns bigint
    language sql volatile
    as $$
    select floor(
               extract(epoch from clock_timestamp() - timestamptz '2026-01-01 00:00:00+00') * 1048576
           )::bigint << 11
           | floor(random() * 2048)::bigint
$$;

-- What was made before keeps its id, which is below all that come.
alter table keys alter column id drop identity;
alter table keys alter column id set default duly.clock_id();
alter table audit_log alter column id drop identity;
alter table audit_log alter column id set default duly.clock_id();

-- Inside, users and tenants go on to be counted: tasks and much else refer to them by an int.
-- People see the public id.
alter table users add column public_id bigint;
update users set public_id = id;
alter table users alter column public_id set default duly.clock_id();
alter table users alter column public_id set not null;
create unique index users_by_public_id on users (tenant_id, public_id);

-- Of tenants there is no index by it: to build one is to note how many there are, and statements
-- are planned for that number from then on. There are few who look for a tenant in this way.
alter table tenants add column public_id bigint;
update tenants set public_id = id;
alter table tenants alter column public_id set default duly.clock_id();
alter table tenants alter column public_id set not null;
