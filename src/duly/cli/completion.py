"""Completes statuses, outcomes, nodes, schedules and recent task ids in the shell.

Completion must never fail or keep the user waiting: without a server there are no suggestions.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

from duly.cli import last_task
from duly.client.endpoint import find_endpoint
from duly.client.retry import Patience
from duly.client.sync import Client
from duly.errors import DulyError

STATUSES = ("scheduled", "blocked", "waiting", "running", "paused", "done", "failed", "cancelled")
OUTCOMES = (
    "succeeded",
    "failed",
    "capped",
    "overused",
    "lost",
    "preempted",
    "expired",
    "cancelled",
)
MAX_SUGGESTIONS = 200


def complete_status(incomplete: str) -> list[str]:
    """Return the statuses that continue the last part of a comma-separated list."""
    return _continuing(STATUSES, incomplete)


def complete_outcome(incomplete: str) -> list[str]:
    """Return the outcomes that continue the last part of a comma-separated list."""
    return _continuing(OUTCOMES, incomplete)


def complete_task(incomplete: str) -> list[str]:
    """Return the ids of tasks that were submitted from here, latest first."""
    with suppress(DulyError):
        return _matching(last_task.recent(find_endpoint()), incomplete)
    return []


def complete_node(incomplete: str) -> list[str]:
    """Return the names of nodes."""
    with suppress(DulyError), _client() as client:
        page = client.list_nodes(limit=MAX_SUGGESTIONS)
        return _matching((node["name"] for node in page["items"]), incomplete)
    return []


def complete_schedule(incomplete: str) -> list[str]:
    """Return the names of schedules, and the ids of those without a name."""
    with suppress(DulyError), _client() as client:
        page = client.list_schedules(limit=MAX_SUGGESTIONS)
        return _matching((item["name"] or item["id"] for item in page["items"]), incomplete)
    return []


def _client() -> Client:
    return Client(patience=Patience(total=timedelta(0)))


def _continuing(words: Iterable[str], incomplete: str) -> list[str]:
    before, comma, part = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in _matching(words, part)]


def _matching(candidates: Iterable[str], incomplete: str) -> list[str]:
    return [text for text in candidates if text.startswith(incomplete)]
