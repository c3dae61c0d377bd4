"""Leaves attempts that are still being prepared on their nodes the time to run.

A lease says when a node is to be told to kill an attempt, for the case that it does not do so
by itself: after the cap, and some time more. The cap counts from when the attempt begins. So as
long as its node says that it fetches what the attempt needs, that time is put off.
"""

from collections.abc import Sequence
from datetime import timedelta

from duly.server.reports import is_possible
from duly.server.resource_manager import BACKSTOP
from duly.store import nodes
from duly.store.database import Database
from duly.store.lanes import Lane
from duly.wire import AttemptRef

SLACK = timedelta(minutes=1)
"""How much more is given each time. It is seldom written, and a few messages may be lost."""
LONGEST = timedelta(minutes=75)
"""How long it can be put off in all; a node gives up before that."""


class Preparations:
    """The attempts that nodes hold and have not begun."""

    def __init__(self, database: Database, grace: timedelta) -> None:
        self._database = database
        self._backstop = grace + BACKSTOP

    async def note(self, node_id: int, refs: Sequence[AttemptRef]) -> None:
        """Note that attempts have not begun; those that are not this node's are left alone."""
        named = [(ref.task, ref.attempt, ref.token) for ref in refs if is_possible(ref)]
        async with self._database.connection(Lane.NODE) as conn:
            await nodes.prolong(
                conn, node_id, named, backstop=self._backstop, slack=SLACK, longest=LONGEST
            )
