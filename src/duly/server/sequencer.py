"""Gives every admitted task an id of its own.

An id is 63 bits: seconds since 2026, the cell, the server's number, and the tick within the
second, of which there are 2**17. So an id tells when it was minted and never how many others were:
tenants see their ids, and must not be able to count each other's tasks.

Time is PostgreSQL's, carried forward by this process's monotonic clock, and never goes back. A
server mints only up to a second that is stored ahead of time, so that whoever holds its number
next can start above it.
"""

from datetime import UTC, datetime

from duly import clock
from duly.errors import Unavailable

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TICK_BITS = 17
SERVER_BITS = 8
CELL_BITS = 6
SECOND_SHIFT = CELL_BITS + SERVER_BITS + TICK_BITS
TICKS = 1 << TICK_BITS
"""Ticks in a second."""
SLEW_TICKS = TICKS // 2
"""Ticks in a second while ids are ahead of the clock: half as many, so that it catches up."""
AHEAD = 10
"""Seconds that the stored mark is ahead of what has been minted."""


class Sequencer:
    """Mints ids under a server's number.

    A position is a number of ticks since the epoch; each is given away once.
    """

    def __init__(self, cell: int = 0) -> None:
        self._cell = cell
        self._number = 0
        self._mark = -1
        self._zero = 0.0
        self._last = -1
        """The position of the last id."""
        self._last_at = 0.0
        """When it was minted, by the monotonic clock."""

    def begin(self, number: int, *, above: int, now: datetime) -> None:
        """Start under `number`, in a second after `above`; mint nothing before `extend`."""
        self._number = number
        self._mark = -1
        self._set(now)
        self._last = max(self._last, (above + 1) * TICKS - 1)
        self._last_at = clock.monotonic()

    def extend(self, mark: int, now: datetime) -> None:
        """Mint up to the second `mark`, which has been stored."""
        self._mark = max(self._mark, mark)
        self._set(now)

    @property
    def next_mark(self) -> int:
        """Return the mark that is to be stored next."""
        return self._next(clock.monotonic()) // TICKS + AHEAD

    @property
    def second(self) -> int:
        """Return the last second that ids were minted in."""
        return self._last // TICKS

    def mint(self) -> int:
        """Return a new id, larger than every one before it from this server."""
        return self._id_at(self._take(1))

    def mint_many(self, count: int) -> list[int]:
        """Return so many new ids in ascending order, larger than every one before them."""
        last = self._take(count)
        position = last - count + 1
        ids: list[int] = []
        while position <= last:
            end = min(last, position | (TICKS - 1))
            first = self._id_at(position)
            ids.extend(range(first, first + end - position + 1))
            position = end + 1
        return ids

    def _take(self, count: int) -> int:
        """Take so many positions in a row, and return the last of them.

        They are those up to now that nobody has used, so that the next id is not put off by them.
        Only what is minted faster than there are ticks borrows from the time to come.
        """
        now = clock.monotonic()
        last = max(self._next(now), self._last + count)
        if last // TICKS > self._mark:
            raise Unavailable("The server's number has not been renewed; try again.")
        self._last, self._last_at = last, now
        return last

    def _next(self, now: float) -> int:
        """Return the first position that may be minted at `now` of the monotonic clock.

        It follows the clock. After the clock was set back, or under a number whose mark is ahead
        of it, positions go on from the last one at half the clock's speed: to take the one after
        the last would be to count.
        """
        slewed = self._last + 1 + int((now - self._last_at) * SLEW_TICKS)
        return max(int((self._zero + now) * TICKS), slewed)

    def _id_at(self, position: int) -> int:
        second, tick = divmod(position, TICKS)
        return (
            (second << SECOND_SHIFT)
            | (self._cell << (SERVER_BITS + TICK_BITS))
            | (self._number << TICK_BITS)
            | tick
        )

    def _set(self, now: datetime) -> None:
        self._zero = (now - EPOCH).total_seconds() - clock.monotonic()
