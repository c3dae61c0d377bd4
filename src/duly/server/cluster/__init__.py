"""Tracks which servers and nodes are alive, elects the leader, and connects the servers.

In come heartbeats and joins of agents through `duly.api.fleet.gateway`; out go terms (which server
leads) and leases of nodes, all stored in the database. Start with `cluster_manager.py`.
`server_bus.py` broadcasts hints between servers over LISTEN/NOTIFY, and `wakeups.py` wakes the
requests that wait on this server. A lost hint costs latency and nothing else.
"""
