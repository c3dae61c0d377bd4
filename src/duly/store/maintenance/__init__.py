"""The queries and repairs of the self-audit, and the daily partitions of history.

`server/maintenance` calls these functions with a connection and a batch size, and decides what to
do about the rows. Start with `audit.py`, which reads; `repairs.py` writes, and `history.py` creates
and drops partitions.
"""
