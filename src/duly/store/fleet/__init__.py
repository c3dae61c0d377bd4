"""Nodes, servers and reservations, and the nodes' free resources.

`nodes.py` has nodes and their incarnations, `servers.py` the servers and their terms,
`fleet_snapshot.py` the input of a scheduling round, `overview.py` the operators' views.
`queues.py` has the queues, `object_store.py` the identity of the object store. Start with
`nodes.py`.
"""
