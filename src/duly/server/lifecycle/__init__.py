"""Changes the status of admitted tasks, except for starting them.

Inputs are reports of attempts, expired leases, due times, and clients' requests to cancel,
pause, update or replay; outputs are new statuses, and tasks whose dependencies are fulfilled.
Start with `queue_manager.py`; `attempt_outcomes.py` applies what `duly.policy.retry` decided.
"""
