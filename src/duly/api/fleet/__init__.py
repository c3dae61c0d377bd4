"""Routes for operators (nodes, servers, status, metrics), and the routes that agents call.

Operators and Prometheus speak JSON and text. Agents speak the msgpack messages of `wire.py` to
`gateway.py`: join, heartbeat, poll and report. Start with `gateway.py`, through which every
assignment and every report passes.
"""
