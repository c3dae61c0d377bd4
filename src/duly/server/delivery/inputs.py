"""Hands the results of a task's upstreams to the node that is to start it.

In pages, so that neither side ever holds more than a few of them: a task may depend on
thousands. Whoever asks must hold the attempt, as for everything that is said on its account.
"""

from duly import wire
from duly.errors import Fenced
from duly.server.reports import is_possible
from duly.store import inputs, nodes
from duly.store.database import Database
from duly.store.lanes import Lane

MOST = 1000
"""Results on a page."""
ENOUGH = 2**20
"""Bytes of results with which a page is full."""
LARGEST = 2**63 - 1


class Inputs:
    """What the attempts that are about to start find of others."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, node_id: int, asked: wire.InputsWanted) -> wire.Inputs:
        """Return the next results for an attempt; raises Fenced when it is not that node's."""
        ref = asked.ref
        async with self._database.connection(Lane.NODE) as conn:
            named = (ref.task, ref.attempt, ref.token)
            if not is_possible(ref) or not await nodes.holds_attempt(conn, node_id, named):
                raise Fenced("The attempt has been given away; its inputs are not shown here.")
            above = max(0, min(asked.above, LARGEST))
            found, more = await inputs.read(conn, ref.task, above=above, limit=MOST, enough=ENOUGH)
        return wire.Inputs(
            results=[wire.Input(one.name, one.result.encode()) for one in found], above=more
        )
