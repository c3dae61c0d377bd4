-- serves: 0003

-- The tenant whose request this transaction serves; null outside of a request.
create function request_tenant() returns int
    language sql stable parallel safe
    as $$select nullif(current_setting('duly.tenant', true), '')::int$$;

-- Let the role of requests see and write only the rows of the tenant that it serves. The owner
-- of the tables is not bound by it. Every table with a `tenant_id` is kept apart in this way,
-- by the migration that makes it.
--
-- `is true` keeps the comparison away from the planner, which then plans a statement as it does
-- without it: through an index of all ids it would otherwise look for one tenant's rows.
create procedure keep_apart(p_table regclass)
    language plpgsql
    as $$
begin
    execute format('alter table %s enable row level security', p_table);
    execute format(
        'create policy own_tenant on %s '
        'using ((tenant_id = (select duly.request_tenant())) is true)', p_table
    );
end
$$;

do $$
declare
    one regclass;
begin
    for one in
        select c.oid
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid
         where c.relnamespace = 'duly'::regnamespace
           and c.relkind in ('r', 'p')
           and not c.relispartition
           and a.attname = 'tenant_id'
           and not a.attisdropped
         order by c.relname
    loop
        call duly.keep_apart(one);
    end loop;
end
$$;

-- An attempt is its task's, which the policy of tasks lets through or not. What is asked of
-- `max_attempts` holds for every task, and keeps the planner to the primary key: without it
-- the index by tenant would do, and that would be walked from end to end.
alter table attempts enable row level security;
create policy own_tenant on attempts
    using (exists (select 1 from duly.tasks t where t.id = task_id and t.max_attempts > 0));

alter table tenants enable row level security;
create policy own_tenant on tenants
    using ((id = (select duly.request_tenant())) is true);

-- Names of tiers that belong to no tenant are everybody's to read.
create policy common on tiers
    for select using (tenant_id is null);

-- As its caller: a view of its owner's would show what the owner sees.
alter view tenants_with_plans set (security_invoker = true);
