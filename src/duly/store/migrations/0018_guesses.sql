-- serves: 0003

-- How often passwords were tried of late, at all servers together: by a digest of tenant and
-- user, whether there is such a user or not. `full_at` is when all the tries are back, so that
-- a row whose time has come says nothing any more, and goes.
create table guesses (
    name     bytea primary key,
    full_at  timestamptz not null
);

create index guesses_by_time on guesses (full_at);
