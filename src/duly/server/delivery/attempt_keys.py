"""Authenticates a running attempt by a key that is valid for that attempt alone.

Keys are not cached: a key is refused on every server as soon as its attempt has ended, and an
attempt calls about once a second.

Decision: docs/adr/0017-attempt-keys.md.
"""

from duly.errors import Fenced, Unauthenticated
from duly.model import attempt_key
from duly.model.attempt_key import AttemptKey
from duly.model.progress import Progress
from duly.server.delivery.report_sanitizer import is_valid_ref
from duly.store.attempts import attempt_keys
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database
from duly.wire import AttemptRef

INVALID_KEY = "The attempt key is not valid: its attempt has ended, or the key was never issued."


class AttemptKeys:
    """The keys of running attempts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, node_id: int, ref: AttemptRef, digest: bytes) -> None:
        """Make a key valid for an attempt; raises Fenced if the node does not hold the attempt."""
        async with self._database.connection(ConnectionClass.NODE) as conn:
            attempt = (ref.task, ref.attempt, ref.token)
            is_held = is_valid_ref(ref) and await attempt_keys.register(
                conn, node_id, attempt, digest
            )
            if not is_held:
                raise Fenced("This node no longer holds the attempt; its key is not registered.")

    async def authenticate(self, text: str) -> AttemptKey:
        """Return the key in `text` if its attempt runs; raises Unauthenticated otherwise."""
        key = attempt_key.parse(text)
        if key is not None:
            async with self._database.connection(ConnectionClass.AUTHENTICATION) as conn:
                if await attempt_keys.is_valid(conn, key):
                    return key
        raise Unauthenticated(INVALID_KEY)

    async def record_progress(self, key: AttemptKey, progress: Progress) -> None:
        """Store the progress of an attempt; raises Unauthenticated if it has ended."""
        async with self._database.connection(ConnectionClass.NODE) as conn:
            if not await attempt_keys.record_progress(conn, key, progress):
                raise Unauthenticated(INVALID_KEY)
