"""Reports the state of attempts to the servers.

`reports.py` sends outcomes until they are acknowledged; everything else is best effort. Tasks
themselves report to the agent through `task_socket.py`. Start with `reports.py`.
"""
