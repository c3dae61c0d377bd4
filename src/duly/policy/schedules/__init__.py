"""When schedules fire: fire times (`recurrence.py`) and what is run of those due (`firing.py`).

Local times are converted by `wall_clock.py`, which knows skipped and repeated hours. Start with
`firing.py`.
"""
