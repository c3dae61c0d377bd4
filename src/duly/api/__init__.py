"""The REST API: translates between HTTP and the components of a server.

`app.py` assembles the routes; `routes.py` is how a handler declares its path, scope, request and
response, from which `openapi.py` generates the API description. `auth.py` authenticates and
authorizes callers, `error_responses.py` maps errors to HTTP statuses.

    requests   decoding of bodies and queries, load shedding, rate limiting, task lookups
    tasks      tasks, graphs, dead letters, logs, artifacts
    schedules  schedules and their history
    fleet      nodes, servers, status, metrics, and the gateway that agents call
    accounts   tenants, users, keys, logins, plans, usage, audit log

Start with `tasks/tasks.py`, then `routes.py`.
"""
