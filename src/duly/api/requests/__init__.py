"""Request handling shared by all routes: load shedding, rate limiting, decoding, lookups.

A request passes `rate_gate.py` and `load_shedding.py` before its body is read; then `body.py`,
`batch_decoding.py` and `query.py` decode it within limits, and `lookups.py` lends the handler a
database connection restricted to the caller's tenant. Start with `load_shedding.py`.
"""
