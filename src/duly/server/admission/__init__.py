"""Turns submissions into stored tasks.

In come requests of clients and replays; out go rows, and responses after their commit. Start with
`submitter.py`: it checks limits (`admission_control.py`: `rate_limiter.py`, `backlog_limit.py`),
pushes the task onto `commit_queue.py`, and stores everything that has gathered there in one
transaction (group commit). Batches and graphs have a transaction of their own: `batches.py`,
`dependencies.py`.
"""
