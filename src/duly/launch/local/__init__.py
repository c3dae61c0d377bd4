"""The parts of `duly up` besides a server: PostgreSQL, child processes, ports, data folder.

Options come in from `launch/up.py`; out go processes that are supervised and restarted until
`duly up` ends. Start with `child_process.py`; `postgres.py` does the same for the database.
"""
