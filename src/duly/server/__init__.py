"""The components of a server, in rooms by concern.

`components.py` builds them and wires them together, `service.py` is the loop that most of them
run in. Requests come in from `duly.api`. All reads and writes go through `duly.store`, and
decisions are made by `duly.policy`.

    admission    a submission becomes a stored task
    scheduling   a waiting task becomes a lease on a node
    delivery     leases and cancellations go out to nodes, reports come back
    lifecycle    attempts end; tasks are retried, cancelled, paused, and release downstream tasks
    recurrence   schedules fire
    cluster      heartbeats of servers and nodes, leader election, the bus between servers
    accounts     tenants, users, keys, plans, usage
    artifacts    bundles and logs in the object store
    maintenance  self-audit, repairs, retention

Start with `admission/submitter.py`, `scheduling/resource_manager.py` and
`lifecycle/queue_manager.py`: together they cover the life of a task.
"""
