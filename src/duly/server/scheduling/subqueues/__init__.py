"""The waiting tasks as the scheduler sees them: subqueues, their heads, and the window of a round.

`prioritizer.py` selects subqueues from the index in `ready_queues.py`; `window_reader.py` reads
their heads from the database where the last round stopped (`cursors.py`), or takes them from
`just_stored.py`. Hints about tasks that became ready come in, and a window in order goes out. Start
with `prioritizer.py`.
"""
