"""Tasks and what belongs to them: dependencies, graphs, schedules, artifacts.

`tasks.py` writes submissions and changes, `views.py` reads tasks for the API, `subqueues.py` reads
waiting tasks for the scheduler. Start with `tasks.py`.
"""
