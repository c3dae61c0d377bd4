"""The bytes that are too large for the database: uploaded artifacts, and the logs of tasks.

`object_store.py` stores the bytes of artifacts, `artifacts.py` uploads and downloads them,
`log_store.py` keeps logs. `artifact_references.py` records which tasks and schedules use an
artifact, and `artifact_gc.py` removes unused ones. `store_guard.py` watches that the store is the
right one, by its mark (`store_mark.py`). Start with `artifacts.py`.
"""
