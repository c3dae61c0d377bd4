"""What protects a server from its clients: rate limits, load shedding, and bounds on bodies.

A request passes `rate_gate.py` and `load_shedding.py` before its body is read; `slow_bodies.py` and
`decoding_limit.py` bound the body, `downloads.py` the streams of one tenant. Start with
`load_shedding.py`.
"""
