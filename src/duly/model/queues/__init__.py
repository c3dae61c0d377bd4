"""Queues and what holds tasks in them: pauses, peak time, and the limits of downstreams.

Start with `queue.py`.
"""
