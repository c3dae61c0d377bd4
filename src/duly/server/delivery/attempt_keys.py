"""Lets a running attempt speak for itself, by a key that is good for that and nothing else.

Nothing is remembered here: an attempt that is over is refused at once on every server,
and one that speaks does so about once a second.
"""

from duly.errors import Fenced, Unauthenticated
from duly.model import attempt_key
from duly.model.attempt_key import AttemptKey
from duly.model.progress import Progress
from duly.server.reports import is_possible
from duly.store import attempt_keys
from duly.store.database import Database
from duly.store.lanes import Lane
from duly.wire import AttemptRef

INVALID = "The key of the attempt is not valid; the attempt is over, or it never was one's own."


class AttemptKeys:
    """The keys of the attempts that run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, node_id: int, ref: AttemptRef, digest: bytes) -> None:
        """Let a key speak for an attempt of a node's; raises Fenced when it is not that node's."""
        async with self._database.connection(Lane.NODE) as conn:
            named = (ref.task, ref.attempt, ref.token)
            is_held = is_possible(ref) and await attempt_keys.register(conn, node_id, named, digest)
            if not is_held:
                raise Fenced("The attempt has been given away; nothing speaks for it here.")

    async def authenticate(self, text: str) -> AttemptKey:
        """Return what the key says, which is true; raises Unauthenticated when it is not."""
        key = attempt_key.read(text)
        if key is not None:
            async with self._database.connection(Lane.CALLER) as conn:
                if await attempt_keys.is_good(conn, key):
                    return key
        raise Unauthenticated(INVALID)

    async def say(self, key: AttemptKey, progress: Progress) -> None:
        """Keep how far the attempt has come; raises Unauthenticated when it is over by now."""
        async with self._database.connection(Lane.NODE) as conn:
            if not await attempt_keys.say(conn, key, progress):
                raise Unauthenticated(INVALID)
