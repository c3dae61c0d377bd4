"""Decisions: pure functions of values, with the current time and random numbers passed in.

No I/O, no clock, no state between calls, so the server, `why`, quotes and simulations share one
implementation. Every decision is returned as a value with a reason. Start with `retry.py`, then
`placement.py` and `queueing.py`; `fairness` decides whose turn it is, `budget` how much more may
start, `schedules` what fires, and `explanation` says why a task waits.
"""
