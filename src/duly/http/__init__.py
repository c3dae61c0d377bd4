"""What reaches below ASGI: connections of uvicorn with limits of ours, and its server.

Only what an ASGI application cannot do is here: bound the head of a request and the time that a
client takes to send and to read (`limits`), refuse tenants over their rate before a request costs
anything (`gate`), write head and body at once (`one_write`), and sleep while nothing is asked
(`server`). All of it relies on names of uvicorn
that are not public; `tests/http/test_private_names.py` lists them, each with its reason, and
fails when one is gone. Read `limits` first. Nothing of the API or the server comes in here.
"""
