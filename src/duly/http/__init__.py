"""The HTTP server below ASGI: uvicorn's protocol and server with limits of our own.

Only what an ASGI application cannot do is here: limit the size of a request's head and the time
that a client takes to send and to read (`connection_limits.py`, read it first), refuse requests
before they cost a task (`early_refusal.py`), write head and body in one packet
(`write_coalescing.py`), and sleep while there are no requests (`server.py`). All of it relies on
private names of uvicorn; `tests/http/test_private_names.py` lists them with the reason for each,
and fails when one is gone. Nothing of the API or the server is imported here.
"""
