"""A warm process of a worker: `python -m duly.agent.pool.process`.

It imports the application once, and then runs the calls that the session sends. One thread reads
from the session (`connection.py`); functions run in the main thread, one at a time
(`one_at_a_time.py`), or many at once in threads and on an event loop (`many_at_once.py`).
Start with `__main__.py`, then `performance.py`.
"""
