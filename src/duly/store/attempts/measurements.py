"""What nodes have told of attempts that run: in the live row, and gone with it."""

from collections.abc import Sequence

import msgspec

from duly.store.database import Connection, load_statements

SQL = load_statements("measurements.sql")


class Measurement(msgspec.Struct, frozen=True):
    """How long an attempt has run, and what it has used by now; None where that is not known."""

    task: int
    attempt: int
    token: int
    ran: float
    cpu_seconds: float | None
    peak_memory_mb: float | None


async def note(conn: Connection, node_id: int, measured: Sequence[Measurement]) -> None:
    """Keep what a node has measured of attempts that are still its own."""
    await conn.execute(
        SQL["note"],
        node_id,
        [one.task for one in measured],
        [one.attempt for one in measured],
        [one.token for one in measured],
        [one.ran for one in measured],
        [one.cpu_seconds for one in measured],
        [one.peak_memory_mb for one in measured],
    )
