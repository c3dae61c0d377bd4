"""Keeps what nodes tell of attempts while these run, for the case that the node is lost.

How an attempt ended, its report tells, and with it when it began and what it used. A lost
attempt has no report: then this is all that is known. Any server may be told, and the leader
needs it, so it is in the database. Attempts that are over within seconds are never told of.
"""

from collections.abc import Sequence

from duly.server.reports import LONGEST, MOST, is_possible, within
from duly.store import measurements
from duly.store.database import Database
from duly.store.lanes import Lane
from duly.store.measurements import Measurement
from duly.wire import Measured


class Measurements:
    """What is known of attempts that run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, node_id: int, told: Sequence[Measured]) -> None:
        """Keep what was measured of attempts that are this node's; of others nothing is kept."""
        possible = [_storable(one) for one in told if is_possible(one.ref)]
        async with self._database.connection(Lane.NODE) as conn:
            await measurements.note(conn, node_id, possible)


def _storable(told: Measured) -> Measurement:
    ref = told.ref
    return Measurement(
        ref.task,
        ref.attempt,
        ref.token,
        within(told.ran, LONGEST),
        None if told.cpu_seconds is None else within(told.cpu_seconds, MOST),
        None if told.peak_memory_mb is None else within(told.peak_memory_mb, MOST),
    )
