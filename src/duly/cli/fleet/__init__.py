"""Commands of operators: start processes, and inspect nodes, servers and resources.

`processes.py`, `agent.py` and `dashboard.py` start what `launch/` composes; all other commands are
calls of the client. Start with `processes.py`.
"""
