-- serves: 0003

-- The line of a tenant and shape in the order of rank, the shorter cap before the id. All of it is
-- ascending, so that a task is a place to go on from: of a thousand that came at once, nobody
-- walks over those that have gone. Servers of the version before find the lines by it and sort
-- those of the same second.
create index live_ranked on live (
    tenant_id, shape_id, start_by, (-priority), (-remaining_path), execution_cap, id
) where status = 'waiting';
drop index live_waiting;
alter index live_ranked rename to live_waiting;
