"""Request handling shared by all routes: decoding, parameters, lookups.

A request that `duly.api.limits` lets pass is decoded within limits by `body.py`,
`batch_decoding.py` and `query.py`, and `lookups.py` lends the handler a database connection
restricted to the caller's tenant. Start with `body.py`.
"""
