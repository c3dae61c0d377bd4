-- serves: 0003

-- A schedule is of a task or of a graph of some, and remembers which of its graphs had not ended
-- when it last fired.
alter table schedules
    alter column task drop not null,
    add column graph        jsonb,
    add column open_graphs  bigint[] not null default '{}',
    add constraint schedules_of_a_task_or_a_graph check (num_nonnulls(task, graph) = 1);

-- A fire time led to a task, to a graph, or to nothing for a reason.
alter table occurrences
    add column graph_id  bigint,
    drop constraint occurrences_run_or_say_why,
    add constraint occurrences_run_or_say_why check (
        num_nonnulls(task_id, graph_id) = 1
        or (num_nonnulls(task_id, graph_id) = 0 and reason is not null)
    );

create unique index occurrences_by_graph on occurrences (graph_id) where graph_id is not null;

-- With `queue` an occurrence waits for the ends of those before it, so these are known as well.
update schedules s
   set open_tasks = array(
        select l.id
          from occurrences o
          join live l on l.id = o.task_id
         where o.schedule_id = s.id
       )
 where s.overlap = 'queue';
