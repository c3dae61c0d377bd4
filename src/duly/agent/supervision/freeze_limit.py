"""How long an attempt stays frozen; for the agent and its supervisor, who both see to it."""

MAX_FROZEN_SECONDS = 300.0
"""Seconds after which a frozen attempt is killed: by then it runs elsewhere."""
