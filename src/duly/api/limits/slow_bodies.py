"""Times out request bodies that arrive too slowly.

A client that stops sending occupies capacity that others need, so a minimum rate applies to every
window of a body, however fast the windows before were. Only time spent waiting for the client
counts, not the time spent processing the bytes.
"""

from duly import clock

RATE_WINDOW_SECONDS = 30.0
"""The rate is measured over this time, for which a client may also be silent."""
FIRST_BYTE_SECONDS = 5.0
"""Time for the first byte of a small body, which usually arrives with the head."""
SMALL_BODY_BYTES = 64 * 1024


class BodyTimeout:
    """Tracks one body against a minimum rate and a maximum duration."""

    def __init__(
        self, min_rate: int, max_seconds: float, content_length: int | None = None
    ) -> None:
        self._window_bytes = min_rate * RATE_WINDOW_SECONDS
        self._bytes_left = self._window_bytes
        """Bytes still to arrive in this window."""
        is_small = content_length is not None and content_length <= SMALL_BODY_BYTES
        self._seconds_left = FIRST_BYTE_SECONDS if is_small else RATE_WINDOW_SECONDS
        """Time for them to arrive."""
        self._has_begun = False
        self._ends_at = clock.monotonic() + max_seconds

    def seconds_left(self, now: float) -> float:
        """Return how long to wait for the next bytes; 0 or less once the body is too slow."""
        return min(self._seconds_left, self._ends_at - now)

    def record(self, size: int, waited: float) -> None:
        """Record that `size` bytes arrived after `waited` seconds."""
        self._seconds_left -= waited
        self._bytes_left -= size
        if self._bytes_left <= 0 or (size and not self._has_begun):
            self._seconds_left = RATE_WINDOW_SECONDS
            self._bytes_left = self._window_bytes
        self._has_begun = self._has_begun or size > 0
