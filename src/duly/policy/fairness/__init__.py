"""Fairness between tenants: what each is entitled to, and whose turn it is.

`shares.py` computes what tenants hold and their fair share of the fleet, `recent_use.py` the order
of those beyond it, and `turns.py` fills the window of a round from both. Start with `turns.py`.
"""
