-- serves: 0003

-- What the agent of a node says of it: how it enforces each kind of limit, and what it is short of
-- itself. A node that is short of something is given no work until it says otherwise.
alter table nodes add column enforcement jsonb not null default '{}';
alter table incarnations add column shortage text;
