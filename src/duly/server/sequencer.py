"""Mints unique ids, in ascending order on each server.

An id is 63 bits: seconds since 2026, the cell, the server's number, and the tick within the
second, of which there are 2**17. So an id shows when it was minted, and never how many others were:
tenants see their ids, and must not be able to count each other's tasks.

Time is PostgreSQL's, carried forward by this process's monotonic clock, and never goes back. A
server mints only up to a high-water mark that it has stored ahead, in seconds, so that the next
holder of its number can start above it.

Decision: docs/adr/0029-ids-from-the-clock.md.
"""

from datetime import UTC, datetime

from duly import clock
from duly.errors import Unavailable

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TICK_BITS = 17
SERVER_BITS = 8
CELL_BITS = 6
SECOND_SHIFT = CELL_BITS + SERVER_BITS + TICK_BITS
TICKS_PER_SECOND = 1 << TICK_BITS
SLEWED_TICKS_PER_SECOND = TICKS_PER_SECOND // 2
"""The rate while ids are ahead of the clock: half, so that the clock catches up."""
MARK_AHEAD_SECONDS = 10
"""How far the stored high-water mark is ahead of the minted ids."""


class Sequencer:
    """Mints ids under a server's number.

    A position is a number of ticks since the epoch, and is used once.
    """

    def __init__(self, cell: int = 0) -> None:
        self._cell = cell
        self._number = 0
        self._mark = -1
        self._clock_offset = 0.0
        self._last = -1
        """The position of the last id."""
        self._last_at = 0.0
        """When it was minted, by the monotonic clock."""

    def begin(self, number: int, *, above: int, now: datetime) -> None:
        """Mint under `number`, in seconds after `above`, once `extend` has been called."""
        self._number = number
        self._mark = -1
        self._synchronize(now)
        self._last = max(self._last, (above + 1) * TICKS_PER_SECOND - 1)
        self._last_at = clock.monotonic()

    def extend(self, mark: int, now: datetime) -> None:
        """Mint up to the second `mark`, after it was stored."""
        self._mark = max(self._mark, mark)
        self._synchronize(now)

    @property
    def next_mark(self) -> int:
        """Return the high-water mark to store next."""
        return self._next(clock.monotonic()) // TICKS_PER_SECOND + MARK_AHEAD_SECONDS

    @property
    def second(self) -> int:
        """Return the second of the last id."""
        return self._last // TICKS_PER_SECOND

    def mint(self) -> int:
        """Return a new id, larger than all that this server has minted before."""
        return self._id_at(self._allocate(1))

    def mint_many(self, count: int) -> list[int]:
        """Return `count` new ids in ascending order, larger than all that were minted before."""
        last = self._allocate(count)
        position = last - count + 1
        ids: list[int] = []
        while position <= last:
            end = min(last, position | (TICKS_PER_SECOND - 1))
            first = self._id_at(position)
            ids.extend(range(first, first + end - position + 1))
            position = end + 1
        return ids

    def _allocate(self, count: int) -> int:
        """Allocate `count` consecutive positions, and return the last of them.

        They are unused positions up to now, so that they do not delay the next id. Only ids that
        are minted faster than ticks pass use positions of the future.
        """
        now = clock.monotonic()
        last = max(self._next(now), self._last + count)
        if last // TICKS_PER_SECOND > self._mark:
            raise Unavailable("This server could not renew its number in the database. Try again.")
        self._last, self._last_at = last, now
        return last

    def _next(self, now: float) -> int:
        """Return the first position that may be minted at `now` of the monotonic clock.

        It follows the clock. After the clock was set back, or under a number whose high-water mark
        is ahead of it, positions go on from the last one at half the clock's speed: to use the very
        next position would reveal how many ids were minted.
        """
        slewed = self._last + 1 + int((now - self._last_at) * SLEWED_TICKS_PER_SECOND)
        return max(int((self._clock_offset + now) * TICKS_PER_SECOND), slewed)

    def _id_at(self, position: int) -> int:
        second, tick = divmod(position, TICKS_PER_SECOND)
        return (
            (second << SECOND_SHIFT)
            | (self._cell << (SERVER_BITS + TICK_BITS))
            | (self._number << TICK_BITS)
            | tick
        )

    def _synchronize(self, now: datetime) -> None:
        self._clock_offset = (now - EPOCH).total_seconds() - clock.monotonic()
