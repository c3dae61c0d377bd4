"""Prepares attempts: everything that a task finds when it starts.

`command_executor.py` takes an assignment, obtains a workspace (`workspace.py`), a user
(`task_users.py`), the bundle and the upstream results, and hands the attempt to the supervisor.
After the attempt has ended, it collects the result and the log. Start with `command_executor.py`.
"""
