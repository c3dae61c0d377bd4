"""Tenants, their users, keys and logins, their plans, and their usage.

Every request passes through `authenticator.py`, which derives the tenant from the credential and
from nothing else. Each of the other files changes one kind of object, in one transaction together
with its entry in the audit log; `usage_recorder.py` keeps the usage ledger. Start with
`authenticator.py`.
"""
