"""How much work a worker asks for: enough to be busy, and never much that waits.

Pure. A *lane* runs one call at a time; a process has one or several.
"""

FIRST_PREFETCH = 64
"""Slots per lane while nothing is known about the functions."""
MAX_PREFETCH = 256
FIRST_DEPTH = 8
"""Calls that a lane is given ahead while nothing is known."""
WAITING_SECONDS = 0.2
"""Seconds of work that may wait behind a lane, and that a call may wait behind a busy one."""
AHEAD_SECONDS = 0.02
"""Seconds of work that a process is given ahead; what else waits can still go to any process."""
WEIGHT = 0.1
"""Of the newest call in the moving average."""


class Pace:
    """What calls have taken lately."""

    def __init__(self) -> None:
        self._seconds: float | None = None

    def add(self, seconds: float) -> None:
        """Count a call. A long one counts as WAITING_SECONDS: its lane is busy anyway."""
        seconds = min(max(seconds, 1e-6), WAITING_SECONDS)
        if self._seconds is None:
            self._seconds = seconds
        else:
            self._seconds += WEIGHT * (seconds - self._seconds)

    def prefetch(self) -> int:
        """Return how many slots a free lane offers: a power of two, so that it rarely changes."""
        if self._seconds is None:
            return FIRST_PREFETCH
        fitting = min(MAX_PREFETCH, int(WAITING_SECONDS / self._seconds))
        return 1 << max(0, fitting.bit_length() - 1)

    def depth(self) -> int:
        """Return how many calls a lane is given at a time."""
        if self._seconds is None:
            return FIRST_DEPTH
        return min(MAX_PREFETCH, 1 + int(AHEAD_SECONDS / self._seconds))

    def offer(self, lanes: int, busy: int) -> int:
        """Return the slots to offer; a lane is busy once its call has run for WAITING_SECONDS."""
        return max(0, lanes - busy) * self.prefetch() + min(busy, lanes)


def is_worth_telling(offered: int, told: int, *, has_excess: bool) -> bool:
    """Return True if the servers should know of an offer before the next heartbeat is due.

    With an excess, calls that have waited for too long are handed back once they know.
    """
    return (has_excess and offered < told) or offered >= 2 * told
