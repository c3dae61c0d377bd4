"""Commands for schedules.

Flags or a manifest become the fields of a request (`schedule_flags.py`, `schedule_file.py`), and
responses become tables (`schedule_tables.py`). Start with `schedules.py`, the commands.
"""
