"""Authenticates callers and nodes by their keys, with a short-lived cache.

The cache spares a busy client a query per request; an entry never outlives its key. A change on
any server sends a hint that invalidates the caches of all. Where the hint is lost, a revoked key
is refused once the cache's TTL has passed.
"""

from datetime import timedelta
from typing import TypeVar

from duly import clock
from duly.errors import Unauthenticated
from duly.model.tenant import Credential
from duly.server.cluster.hints import Hint
from duly.store.accounts import tenants
from duly.store.accounts.tenants import digest
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database
from duly.store.fleet import nodes

V = TypeVar("V")
CACHE_TTL = timedelta(seconds=3)
MAX_CACHED_KEYS = 10_000
"""Beyond this many entries the oldest are evicted."""


class Authenticator:
    """Looks up keys, and caches their credentials."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._credentials: dict[bytes, tuple[float, Credential]] = {}
        self._nodes: dict[bytes, tuple[float, int]] = {}
        self._invalidations = 0

    def on_hint(self, hint: Hint) -> None:
        """Invalidate the cached credentials if the hint says that some have changed."""
        if hint.credentials:
            self._invalidations += 1
            self._credentials.clear()

    def get_cached(self, key: str) -> Credential | None:
        """Return the credential of `key` if it is cached, without a query."""
        return _get(self._credentials, digest(key))

    def get_cached_node(self, key: str) -> int | None:
        """Return the id of the node that holds `key` if it is cached, without a query."""
        return _get(self._nodes, digest(key))

    async def authenticate(self, key: str) -> Credential:
        """Return the credential of `key`; raises Unauthenticated when it is not valid."""
        hashed = digest(key)
        if (cached := _get(self._credentials, hashed)) is not None:
            return cached
        async with self._database.connection(ConnectionClass.AUTHENTICATION) as conn:
            # A concurrent request may have filled the cache while this one waited.
            if (cached := _get(self._credentials, hashed)) is not None:
                return cached
            invalidations, read_at = self._invalidations, clock.monotonic()
            credential = await tenants.by_key(conn, key)
        if credential is None:
            self._credentials.pop(hashed, None)
            raise Unauthenticated("The key is not valid: it is unknown, expired or revoked.")
        # A row read before an invalidation may predate the change that caused it.
        if invalidations == self._invalidations:
            _put(self._credentials, hashed, credential, read_at, _ttl(credential.expires_in))
        return credential

    async def find(self, key: str) -> Credential | None:
        """Return the credential of `key`, uncached; None if it is no valid API key."""
        async with self._database.connection(ConnectionClass.AUTHENTICATION) as conn:
            return await tenants.by_key(conn, key)

    async def authenticate_node(self, key: str) -> int:
        """Return the id of the node that holds `key`; raises Unauthenticated when none does."""
        hashed = digest(key)
        if (cached := _get(self._nodes, hashed)) is not None:
            return cached
        async with self._database.connection(ConnectionClass.LEASE) as conn:
            read_at = clock.monotonic()
            node = await nodes.by_key(conn, hashed)
        if node is None or node.is_removed:
            self._nodes.pop(hashed, None)
            raise Unauthenticated("The node's key is not valid. Join again with a new token.")
        _put(self._nodes, hashed, node.id, read_at, CACHE_TTL)
        return node.id


def _get(cache: dict[bytes, tuple[float, V]], hashed: bytes) -> V | None:
    entry = cache.get(hashed)
    return entry[1] if entry and clock.monotonic() < entry[0] else None


def _ttl(lasts: timedelta | None) -> timedelta:
    """Return how long a credential is cached: never beyond the end of its key."""
    return CACHE_TTL if lasts is None else min(CACHE_TTL, lasts)


def _put(
    cache: dict[bytes, tuple[float, V]], hashed: bytes, value: V, read_at: float, ttl: timedelta
) -> None:
    """Cache a value; its TTL counts from before it was read, as it may be that old already."""
    while len(cache) >= MAX_CACHED_KEYS:
        cache.pop(next(iter(cache)))
    cache[hashed] = (read_at + ttl.total_seconds(), value)
