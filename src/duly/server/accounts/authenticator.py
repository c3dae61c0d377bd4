"""Tells who is calling, from the key alone.

Answers are remembered for a moment, so that a busy client costs no query for each
request, and never beyond the end of a key. What is changed on any server is forgotten on all as
soon as they hear of it; and where they do not, a key that is revoked is refused after that moment
all the same.
"""

from datetime import timedelta
from typing import TypeVar

from duly import clock
from duly.errors import Unauthenticated
from duly.model.tenant import Credential
from duly.server.news import News
from duly.store import nodes, tenants
from duly.store.database import Database
from duly.store.lanes import Lane
from duly.store.tenants import digest

V = TypeVar("V")
REMEMBERED = timedelta(seconds=3)
MOST = 10_000
"""How many keys are remembered at once; beyond that the oldest are forgotten."""


class Authenticator:
    """Looks keys up, and remembers them for a moment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[bytes, tuple[float, Credential]] = {}
        self._nodes: dict[bytes, tuple[float, int]] = {}
        self._changes = 0
        """How often there was something to forget."""

    def hear(self, told: News) -> None:
        """Forget who was known, if that may have changed."""
        if told.credentials:
            self._changes += 1
            self._known.clear()

    def recall(self, key: str) -> Credential | None:
        """Return who holds `key`, if that was asked a moment ago: then nobody has to wait."""
        return _recall(self._known, digest(key))

    def recall_node(self, key: str) -> int | None:
        """Return the node that holds `key`, if that was asked a moment ago."""
        return _recall(self._nodes, digest(key))

    async def authenticate(self, key: str) -> Credential:
        """Return who holds `key`; raises Unauthenticated when nobody does."""
        hashed = digest(key)
        if (remembered := _recall(self._known, hashed)) is not None:
            return remembered
        async with self._database.connection(Lane.CALLER) as conn:
            # Of many who come at once, the first has asked while the others waited.
            if (remembered := _recall(self._known, hashed)) is not None:
                return remembered
            seen, asked = self._changes, clock.monotonic()
            credential = await tenants.by_key(conn, key)
        if credential is None:
            self._known.pop(hashed, None)
            raise Unauthenticated("The key is not valid; it is unknown, expired or revoked.")
        # What was read before a change was heard of may be from before that change.
        if seen == self._changes:
            _remember(self._known, hashed, credential, asked, _at_most(credential.lasts))
        return credential

    async def authenticate_node(self, key: str) -> int:
        """Return the id of the node that holds `key`; raises Unauthenticated when none does."""
        hashed = digest(key)
        if (remembered := _recall(self._nodes, hashed)) is not None:
            return remembered
        async with self._database.connection(Lane.LEASE) as conn:
            asked = clock.monotonic()
            node = await nodes.by_key(conn, hashed)
        if node is None or node.is_removed:
            self._nodes.pop(hashed, None)
            raise Unauthenticated("The node's key is not valid; join with a token again.")
        _remember(self._nodes, hashed, node.id, asked, REMEMBERED)
        return node.id


def _recall(known: dict[bytes, tuple[float, V]], hashed: bytes) -> V | None:
    remembered = known.get(hashed)
    return remembered[1] if remembered and clock.monotonic() < remembered[0] else None


def _at_most(lasts: timedelta | None) -> timedelta:
    """Return for how long a key is remembered: a moment, and never beyond its end."""
    return REMEMBERED if lasts is None else min(REMEMBERED, lasts)


def _remember(
    known: dict[bytes, tuple[float, V]], hashed: bytes, value: V, asked: float, lasts: timedelta
) -> None:
    """Remember an answer from when it was asked for: so old it may be already."""
    while len(known) >= MOST:
        known.pop(next(iter(known)))
    known[hashed] = (asked + lasts.total_seconds(), value)
