"""Serves the results of a task's upstreams to the node that is about to start it.

In pages, so that neither side holds more than a few results at once: a task may have thousands of
upstreams. Only the node that holds the attempt may read them.
"""

from duly import wire
from duly.errors import Fenced
from duly.server.delivery.report_sanitizer import is_valid_ref
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database
from duly.store.fleet import nodes
from duly.store.tasks import inputs

MAX_PAGE_RESULTS = 1000
FULL_PAGE_BYTES = 2**20
"""A page ends with the result that reaches this size."""
MAX_TASK_ID = 2**63 - 1


class Inputs:
    """The results of upstreams, page by page."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_page(self, node_id: int, request: wire.InputsRequest) -> wire.InputsPage:
        """Return the next results for an attempt; raises Fenced if the node does not hold it."""
        ref = request.ref
        async with self._database.connection(ConnectionClass.NODE) as conn:
            attempt = (ref.task, ref.attempt, ref.token)
            if not is_valid_ref(ref) or not await nodes.holds_attempt(conn, node_id, attempt):
                raise Fenced("This node no longer holds the attempt; its inputs are not returned.")
            cursor = max(0, min(request.above, MAX_TASK_ID))
            page, next_cursor = await inputs.read(
                conn, ref.task, above=cursor, limit=MAX_PAGE_RESULTS, enough=FULL_PAGE_BYTES
            )
        return wire.InputsPage(
            results=[wire.UpstreamResult(row.name, row.result.encode()) for row in page],
            above=next_cursor,
        )
