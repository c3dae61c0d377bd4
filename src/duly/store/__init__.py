"""Reads and writes PostgreSQL; decisions are made elsewhere.

Every module has its statements in the file of the same name in `sql/`, each named and with its
parameters listed; `database.py` runs them, in transactions and under timeouts. Functions take a
connection and many rows, make one round trip, and return values of `duly.model`.

    connections  how connections are opened, shared between tenants, and restricted to one tenant
    embedded     the bundled PostgreSQL that `duly up` runs
    tasks        tasks, dependencies, graphs, schedules, artifacts
    attempts     leases, and the resources that running attempts use
    fleet        nodes, servers, reservations, free resources
    accounts     tenants, users, keys, plans, usage, audit log
    maintenance  self-audit, repairs, history

The schema is `migrations/0001_schema.sql`; docs/reference/database.md describes it. Start with
`attempts/leases.py` and `sql/leases.sql`.
"""
