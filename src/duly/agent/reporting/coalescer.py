"""Rate-limits progress to the newest report of each attempt, once a second.

Pure: the caller passes the time. The last report is always delivered in the end, unless the attempt
is forgotten before.
"""

from duly.model.progress import Progress
from duly.wire import AttemptRef

MIN_INTERVAL_SECONDS = 1.0
"""Seconds between two reports of the same attempt."""


class Coalescer:
    """The latest pending report of each attempt."""

    def __init__(self) -> None:
        self._waiting: dict[AttemptRef, Progress] = {}
        self._next_at: dict[AttemptRef, float] = {}

    def say(self, ref: AttemptRef, progress: Progress) -> bool:
        """Add a report of an attempt; False if it replaces one that is already pending."""
        is_first = ref not in self._waiting
        self._waiting[ref] = progress
        return is_first

    def take(self, now: float) -> list[tuple[AttemptRef, Progress]]:
        """Remove and return the reports that are due, and count them as sent."""
        due = [ref for ref in self._waiting if self._next_at.get(ref, now) <= now]
        for ref in due:
            self._next_at[ref] = now + MIN_INTERVAL_SECONDS
        return [(ref, self._waiting.pop(ref)) for ref in due]

    def put_back(self, ref: AttemptRef, progress: Progress) -> None:
        """Return an unsent report, unless a newer one is pending or the attempt is forgotten."""
        if ref in self._next_at:
            self._waiting.setdefault(ref, progress)

    def wait(self, now: float) -> float | None:
        """Return the seconds until a report is due; None if none is pending."""
        if not self._waiting:
            return None
        return max(0.0, min(self._next_at.get(ref, now) for ref in self._waiting) - now)

    def forget(self, ref: AttemptRef) -> None:
        """Drop the pending report of an attempt."""
        self._waiting.pop(ref, None)
        self._next_at.pop(ref, None)
