-- serves: 0003

-- When the task of a key ended, noted as the task is forgotten: a key is kept for so long after
-- that end, whichever of them goes first.
alter table submissions add column ended_at timestamptz;

-- Drop a day of history. What is live is kept, and what no books have yet, and what a live task
-- depends on, whose result it may read. It moves to the rest.
create or replace procedure drop_day(day int)
    language plpgsql
    as $$
declare
    parent text;
    parents text[] := array['tasks', 'attempts', 'ends', 'events'];
    began timestamptz := timestamptz '2026-01-01 00:00:00+00' + day * interval '24 hours';
begin
    if to_regclass(format('duly.%I', 'edges_' || day)) is not null then
        parents := parents || 'edges'::text;
    end if;
    foreach parent in array parents loop
        execute format('alter table duly.%I detach partition duly.%I', parent, parent || '_' || day);
    end loop;
    create temporary table survivors on commit drop as
        select id from duly.live
         where id >= duly.first_id_of(day) and id < duly.first_id_of(day + 1);
    -- Nobody can add an edge before the commit, since the parents are locked.
    foreach parent in array array['edges', 'edges_' || day] loop
        continue when to_regclass(format('duly.%I', parent)) is null;
        execute format(
            'insert into survivors select e.upstream_id from duly.%I e '
            'cross join lateral (select from duly.live l where l.id = e.dependant_id offset 0) as is_live '
            'where e.upstream_id >= $1 and e.upstream_id < $2',
            parent
        ) using duly.first_id_of(day), duly.first_id_of(day + 1);
    end loop;
    execute format(
        'insert into survivors select task_id from duly.%I where entry > '
        '(select booked_to from duly.books)',
        'attempts_' || day
    );
    -- Ids and keys are of the same moment, but for a server's clock.
    execute format(
        'update duly.submissions s set ended_at = e.finished_at from duly.%I e '
        'where s.created_at >= $1 and s.created_at < $2 and e.task_id = s.task_id',
        'ends_' || day
    ) using began - interval '1 hour', began + interval '25 hours';
    delete from duly.dead_letters
     where task_id >= duly.first_id_of(day) and task_id < duly.first_id_of(day + 1)
       and task_id not in (select id from survivors);
    delete from duly.former_specs
     where task_id >= duly.first_id_of(day) and task_id < duly.first_id_of(day + 1)
       and task_id not in (select id from survivors);
    foreach parent in array parents loop
        execute format(
            'insert into duly.%I overriding system value select * from duly.%I where %I in (select id from survivors)',
            parent, parent || '_' || day,
            case parent when 'tasks' then 'id' when 'edges' then 'dependant_id' else 'task_id' end
        );
        execute format('drop table duly.%I', parent || '_' || day);
    end loop;
    drop table survivors;
end
$$;
