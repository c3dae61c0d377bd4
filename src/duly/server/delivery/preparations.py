"""Extends the kill deadline of attempts that their nodes are still preparing.

A lease carries the time after which a node is told to kill an attempt that it should have killed
itself: the execution cap and some more. The cap counts from the start of the attempt, so while
the node reports that it still fetches what the attempt needs, the deadline is extended.
"""

from collections.abc import Sequence
from datetime import timedelta

from duly.server.delivery.report_sanitizer import is_valid_ref
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database
from duly.store.fleet import nodes
from duly.wire import AttemptRef

KILL_BACKSTOP = timedelta(seconds=5)
"""How long after cap and grace an agent is told to kill an attempt."""
EXTENSION = timedelta(minutes=1)
"""Added at a time: long enough to be written seldom, and to survive a few lost messages."""
MAX_EXTENSION = timedelta(minutes=75)
"""In all; a node gives up preparing before that."""


class Preparations:
    """The attempts that nodes hold and have not started."""

    def __init__(self, database: Database, grace: timedelta) -> None:
        self._database = database
        self._backstop = grace + KILL_BACKSTOP

    async def extend_deadlines(self, node_id: int, refs: Sequence[AttemptRef]) -> None:
        """Extend the kill deadlines of the node's own attempts; others are ignored."""
        attempts = [(ref.task, ref.attempt, ref.token) for ref in refs if is_valid_ref(ref)]
        async with self._database.connection(ConnectionClass.NODE) as conn:
            await nodes.extend_backstop(
                conn,
                node_id,
                attempts,
                backstop=self._backstop,
                slack=EXTENSION,
                longest=MAX_EXTENSION,
            )
