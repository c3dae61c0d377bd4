-- serves: 0003

-- What nodes have told of attempts that have been running for a while: when they began and what
-- they have used by then. It is all that is known if the node is lost. Short attempts never have
-- any of it, so for most rows it is null and takes no room. None of it is indexed: to note it is
-- an update in place (HOT). What an earlier attempt has left here counts for nothing: it is read
-- only under the token that it was noted with.
alter table live
    add column measured_token  bigint,
    add column running_since   timestamptz,
    add column cpu_seconds     real,
    add column peak_memory_mb  real;
