-- serves: 0003

-- Among the live tasks of a tenant, a unique key is held by one: until it has ended, or until
-- it is first leased. The index decides between two who come at once.
alter table tasks
    add column unique_key    text,
    add column unique_while  text;

alter table live
    add column unique_key    text,
    add column unique_while  text,
    add constraint live_unique_has_an_end check (
        (unique_key is null and unique_while is null)
        or (unique_key is not null and unique_while in ('waiting', 'live'))
    );

create unique index live_unique on live (tenant_id, unique_key)
    where unique_key is not null and (unique_while = 'live' or attempt = 0);

-- What counts as waiting besides `waiting` itself, by tenant.
create index live_later on live (tenant_id) where status in ('scheduled', 'blocked', 'paused');
