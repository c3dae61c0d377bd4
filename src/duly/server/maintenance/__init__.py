"""Keeps the database correct and bounded while this server leads.

`auditor.py` checks the tables against invariants, page by page (`audit_checks.py`), and
`repairer.py` corrects what can be corrected safely. `retention.py` drops days of history;
`plan_retention.py` removes the history of tenants whose plans have a shorter retention. Start with
`auditor.py`.
"""
