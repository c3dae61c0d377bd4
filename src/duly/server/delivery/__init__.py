"""Delivers attempts to nodes, and takes in what agents send while attempts run.

In come leases from `duly.server.scheduling` and the polls of agents through
`duly.api.fleet.gateway`; out go orders: assignments to start and attempts to stop. Start with
`polls.py`: a poll is answered from `mailboxes.py` if possible, and otherwise by comparing what the
agent holds with `expected_attempts.py`.
"""
