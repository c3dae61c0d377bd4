"""Stores the start and the usage of running attempts, in case their node is lost.

The report of an ended attempt carries its start and its usage. A lost attempt has no report, and
these measurements are all that is left of it. Any server may receive them and the leader needs
them, so they are in the database. Attempts that end within seconds are never measured.
"""

from collections.abc import Sequence

from duly.server.delivery.report_sanitizer import (
    MAX_DURATION_SECONDS,
    MAX_USAGE,
    clamp,
    clamp_optional,
    is_valid_ref,
)
from duly.store.attempts import measurements
from duly.store.attempts.measurements import Measurement
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database
from duly.wire import MeasuredUsage


class Measurements:
    """The measurements of running attempts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, node_id: int, measured: Sequence[MeasuredUsage]) -> None:
        """Store measurements of the node's own attempts; others are ignored."""
        valid = [_sanitize(message) for message in measured if is_valid_ref(message.ref)]
        async with self._database.connection(ConnectionClass.NODE) as conn:
            await measurements.record(conn, node_id, valid)


def _sanitize(message: MeasuredUsage) -> Measurement:
    ref, cpu, memory = message.ref, message.cpu_seconds, message.peak_memory_mb
    return Measurement(
        ref.task,
        ref.attempt,
        ref.token,
        clamp(message.ran, MAX_DURATION_SECONDS),
        clamp_optional(cpu, MAX_USAGE),
        clamp_optional(memory, MAX_USAGE),
    )
