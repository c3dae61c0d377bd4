"""How a server connects to PostgreSQL, and how its connections are shared.

`connecting.py` finds the host that accepts writes, `connection_classes.py` reserves connections for
urgent work, `fair_semaphore.py` shares the rest between tenants. A tenant's requests read through
`tenant_scope.py`, as a role that row-level security restricts (`request_role.py`). Start with
`connection_classes.py`.
"""
