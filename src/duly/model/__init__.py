"""The domain model: frozen values without any I/O.

Start with `task.py`, `resources.py` and `tenant.py`. `queues` and `schedules` have rooms of their
own. `requests` has the requests of clients, which become these values; `archives` reads untrusted
bundles.
"""
