"""Tenants, users, keys, plans, and recorded usage.

`tenants.py` resolves credentials; every change is recorded in `audit_log.py` in its transaction.
Start with `tenants.py`.
"""
