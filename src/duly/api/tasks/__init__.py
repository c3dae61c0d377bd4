"""Routes for tasks, graphs, dead letters, logs and artifacts.

A request becomes a call of a component in `server/admission`, `server/lifecycle` or
`server/artifacts`, and its result becomes JSON (`task_shapes.py`). Everything is limited to the
tenant of the caller's key. Start with `tasks.py`, where a task is submitted.
"""
