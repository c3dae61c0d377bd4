"""Attempts: leases of tasks to nodes, and the resources that tenants use through them.

Start with `leases.py`: lease, finish, expire. `quota_fence.py` keeps leases within tenants'
limits, `attempt_list.py` lists attempts across tasks; the other files store what a running attempt
reports about itself.
"""
