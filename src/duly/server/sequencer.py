"""Gives every admitted task an id of its own.

An id is 63 bits: seconds since 2026, the cell, the server's number, a sequence.
Seconds are PostgreSQL's, carried forward by this process's monotonic clock, and
never go back; a burst of more than a second's worth borrows from the next. A server
mints only up to a mark that is stored ahead of time, so that whoever holds its
number next can start above it.
"""

from datetime import UTC, datetime

from duly import clock
from duly.errors import Unavailable

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SEQUENCE_BITS = 17
SERVER_BITS = 8
CELL_BITS = 6
AHEAD = 10
"""Seconds that the stored mark is ahead of what has been minted."""


class Sequencer:
    """Mints ids under a server's number."""

    def __init__(self, cell: int = 0) -> None:
        self._cell = cell
        self._number = 0
        self._second = -1
        self._sequence = 0
        self._mark = -1
        self._zero = 0.0

    def begin(self, number: int, *, above: int, now: datetime) -> None:
        """Start under `number`, in a second after `above`; mint nothing before `extend`."""
        self._number = number
        self._mark = -1
        self._set(now)
        self._second = max(self._second, above, self._now() - 1)
        self._advance()

    def extend(self, mark: int, now: datetime) -> None:
        """Mint up to the second `mark`, which has been stored."""
        self._mark = max(self._mark, mark)
        self._set(now)

    @property
    def next_mark(self) -> int:
        """Return the mark that is to be stored next."""
        return max(self._now(), self._second) + AHEAD

    @property
    def second(self) -> int:
        """Return the last second that ids were minted in."""
        return self._second

    def mint(self) -> int:
        """Return a new id, larger than every one before it from this server."""
        now = self._now()
        if now > self._second:
            self._second = now - 1
            self._advance()
        elif self._sequence >= 1 << SEQUENCE_BITS:
            self._advance()
        if self._second > self._mark:
            raise Unavailable("The server's number has not been renewed; try again.")
        sequence = self._sequence
        self._sequence += 1
        return (
            (self._second << (CELL_BITS + SERVER_BITS + SEQUENCE_BITS))
            | (self._cell << (SERVER_BITS + SEQUENCE_BITS))
            | (self._number << SEQUENCE_BITS)
            | sequence
        )

    def _advance(self) -> None:
        self._second += 1
        self._sequence = 0

    def _set(self, now: datetime) -> None:
        self._zero = (now - EPOCH).total_seconds() - clock.monotonic()

    def _now(self) -> int:
        return int(self._zero + clock.monotonic())
