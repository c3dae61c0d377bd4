"""The agent, which runs on every node and never sees the database.

`state.py` is the protocol as a pure state machine: events in, effects out. `session.py` feeds it
and does what it asks for; `gateway.py` speaks to the servers. `agent.py` starts and stops
everything.

    preparation  everything before a task's first instruction: workspace, bundle, inputs, user
    supervision  the supervisor and its spawners: separate processes that start and end tasks
    limits       cgroups, disk and memory: how a task is kept within its resources
    pool         workers: functions in warm processes instead of commands
    reporting    what goes back to the servers: outcomes, logs, progress, measurements

Start with `state.py`, then `session.py` and `executor.py`.
"""
