"""The budget of a scheduling round: how much more may start, whatever the order.

Limits of tenants (`limits.py`), queues (`queue_room.py`) and downstreams (`downstream.py`), and
what is postponed or kept free at peak time (`peak.py`, `headroom.py`). Start with `limits.py`,
which has the `Budget`.
"""
