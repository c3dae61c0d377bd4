"""Fires schedules.

Users add and change schedules (`schedules.py`); each occurrence that comes out is an ordinary
task or graph. Start with `timekeeper.py`: while this server leads, it finds due schedules,
`occurrence_admission.py` checks the tenant's limits, `occurrence_claims.py` makes sure that each
fire time is used once, `occurrences.py` stores the tasks, and `overlaps.py` queues them behind
earlier occurrences or cancels those.
"""
