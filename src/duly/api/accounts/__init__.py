"""Routes for tenants, users, keys, logins, plans, tiers, limits, usage and the audit log.

A request becomes a call of a component in `server/accounts`. Administrators manage everything;
other callers see their own tenant. The JSON is in `accounts.py` and `plan_shapes.py`. Start with
`keys.py`.
"""
