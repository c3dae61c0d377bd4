"""Reads which attempts each incarnation should hold, without scanning dead index entries.

An ended attempt leaves an entry in the index of running attempts until no snapshot can see it any
more. Tokens only increase, so a read starts above the watermark: the token up to which the agent
holds every attempt that it should. Attempts below it that the agent reports are looked up by id.
From time to time, and after every error, everything is read: the commit of a lease whose response
was lost may become visible late, with a token below the watermark.
"""

from collections.abc import Sequence
from datetime import timedelta

from duly import wire
from duly.server.delivery.report_sanitizer import is_valid_ref
from duly.server.duty_cycle import DutyCycle
from duly.store.database import Connection
from duly.store.fleet import nodes
from duly.store.fleet.nodes import ExpectedAttempt

LOWEST_TOKEN = 0
"""Below every token."""
FULL_READ_INTERVAL = timedelta(seconds=1)


class Watermark:
    """The token up to which an incarnation holds all its attempts, and when to verify that."""

    def __init__(self) -> None:
        self.token = LOWEST_TOKEN
        self.full_read = DutyCycle(FULL_READ_INTERVAL)


class ExpectedAttempts:
    """Reads the attempts that incarnations should hold, and keeps a watermark of each."""

    def __init__(self) -> None:
        self._watermarks: dict[int, Watermark] = {}

    async def read(
        self, conn: Connection, node_id: int, incarnation: int, held: Sequence[wire.AttemptRef]
    ) -> list[ExpectedAttempt] | None:
        """Return the attempts that an incarnation should hold, given that it reports `held`.

        None means that the incarnation has ended or belongs to another node; its watermark is
        dropped.
        """
        # Removed during the read: after an error the next read is a full one.
        watermark = self._watermarks.pop(incarnation, None) or Watermark()
        if watermark.full_read.is_due:
            with watermark.full_read.step(among=len(self._watermarks) + 1):
                rows = await nodes.read_expected(conn, incarnation, node_id, LOWEST_TOKEN, [])
            watermark.token = LOWEST_TOKEN if rows else watermark.token
        else:
            below = [ref.task for ref in held if ref.token <= watermark.token and is_valid_ref(ref)]
            rows = await nodes.read_expected(conn, incarnation, node_id, watermark.token, below)
        if rows is None:
            return None
        # Every read returns all marked attempts, whatever their token.
        unmarked = [row for row in rows if not row.is_marked]
        watermark.token = _advance(watermark.token, unmarked, held)
        self._watermarks[incarnation] = watermark
        return rows


def _advance(token: int, rows: Sequence[ExpectedAttempt], held: Sequence[wire.AttemptRef]) -> int:
    """Return the token up to which the agent holds every attempt that it should."""
    held_tokens = {ref.token for ref in held}
    missing = [row.token for row in rows if row.token not in held_tokens]
    if missing:
        return min(missing) - 1
    return max([token, *(row.token for row in rows)])
