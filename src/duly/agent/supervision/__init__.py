"""The processes that start tasks, watch them and end them.

`supervisor.py` is one process below the agent, which keeps working when the agent hangs and ends
attempts whose lease has expired. `spawner.py` is one process per tenant below it, which starts
tasks. `supervisor_link.py` and `spawner_handle.py` are the parents' ends of the sockets between
them, `frames.py` is the protocol. The two processes import as little as they can.
Start with `supervisor.py`.
"""
