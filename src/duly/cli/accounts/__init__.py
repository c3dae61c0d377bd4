"""Commands for tenants, users, keys, plans, tiers, limits, usage and the audit log.

Each command is one call of the client. Passwords come from a prompt or standard input, never from
an argument (`shared.py`). Start with `tenants.py`.
"""
