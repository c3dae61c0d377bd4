-- serves: 0003

-- The key under which only so many attempts of a tenant may run at once, and how many.
alter table shapes add column concurrency jsonb;

-- What keeps tenants within what they may have at once; one row. `revision` rises with whatever
-- changes what a tenant may have: its plan, the limits of that plan, a suspension. `given` rises
-- with whatever is given to tenants that have limits, by a lease or by a reservation. Whoever
-- gives names both as they were when it counted, so that nothing is given by an old count or an
-- old limit. What ends makes room, and needs no mark.
create table quotas (
    is_only   boolean primary key default true check (is_only),
    revision  bigint not null,
    given     bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

insert into quotas (revision, given) values (1, 1);

create function revise_quotas() returns trigger
    language plpgsql
    as $$
begin
    update duly.quotas set revision = revision + 1;
    return null;
end
$$;

-- At the commit, so that whoever changes a tenant or a plan holds the mark as briefly as can be.
create constraint trigger plans_revise_quotas
    after update on plans
    deferrable initially deferred
    for each row
    when ((old.max_running, old.max_resources)
          is distinct from (new.max_running, new.max_resources))
    execute function revise_quotas();

create constraint trigger tenants_revise_quotas
    after update on tenants
    deferrable initially deferred
    for each row
    when ((old.plan, old.suspended_at, old.removed_at)
          is distinct from (new.plan, new.suspended_at, new.removed_at))
    execute function revise_quotas();

-- Hold the marks until the commit, and return p_term. With p_given, what is leased counts
-- against a limit. Locked before nodes and tasks, here and by reservations: two orders would
-- be a deadlock.
create function hold_quotas(p_term bigint, p_revision bigint, p_given bigint)
    returns bigint
    language plpgsql
    as $$
begin
    if p_given is null then
        perform 1
           from duly.quotas q
          where q.revision = p_revision
            for share;
    else
        update duly.quotas q
           set given = q.given + 1
         where q.revision = p_revision
           and q.given = p_given;
    end if;
    if not found then
        raise exception 'quotas have changed' using errcode = 'DU002';
    end if;
    return p_term;
end
$$;
