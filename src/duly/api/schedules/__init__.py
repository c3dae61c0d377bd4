"""Routes for schedules and the history of their fire times.

A request becomes a call of a component in `server/recurrence`, and its result becomes JSON
(`schedule_shapes.py`). Start with `schedules.py`; `schedule_history.py` lists occurrences.
"""
