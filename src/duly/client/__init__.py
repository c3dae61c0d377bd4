"""The Python client of the REST API, also used by the command line and the dashboard.

`sync.py` and `aio.py` are the two clients. `calls` describes every request once as a `Call` value
(defined in `call.py`), and `shapes` has the types of its response; the transports only move bytes.
`call_attempts.py` and `retry.py` handle retries, backoff and failover between servers. Start with
`call.py`.
"""
