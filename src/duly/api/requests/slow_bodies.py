"""How slowly a body may come.

A client that stops sending keeps its room from others, so a body has to go on: a minimum rate
holds for every stretch of it, however fast the stretches before were. Only time spent waiting
for the client counts, not what is done with the bytes meanwhile.
"""

from duly import clock

WINDOW = 30.0
"""Seconds over which the rate is measured; so long a client may also be silent."""
FIRST_BYTE_SECONDS = 5.0
"""Seconds for the first byte of a small body, which usually comes along with the head."""
SMALL_BODY = 64 * 1024


class BodyPace:
    """Tracks one body against a minimum rate and a maximum duration."""

    def __init__(self, min_rate: int, max_seconds: float, announced: int | None = None) -> None:
        self._window_bytes = min_rate * WINDOW
        self._missing = self._window_bytes
        """Bytes that are still to come before the next window begins."""
        is_small = announced is not None and announced <= SMALL_BODY
        self._left = FIRST_BYTE_SECONDS if is_small else WINDOW
        """Seconds to wait for them."""
        self._has_begun = False
        self._ends_at = clock.monotonic() + max_seconds

    def patience(self, now: float) -> float:
        """Return for how many seconds to wait for more; 0 or less once it came too slowly."""
        return min(self._left, self._ends_at - now)

    def count(self, size: int, waited: float) -> None:
        """Take in that `size` bytes came after `waited` seconds."""
        self._left -= waited
        self._missing -= size
        if self._missing <= 0 or (size and not self._has_begun):
            self._left = WINDOW
            self._missing = self._window_bytes
        self._has_begun = self._has_begun or size > 0
