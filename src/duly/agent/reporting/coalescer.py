"""Lets through the newest of what each attempt says, and no more than one a second.

Pure: it is told the time. The last thing that was said is always let through in the end,
unless the attempt is forgotten before.
"""

from duly.model.progress import Progress
from duly.wire import AttemptRef

EVERY = 1.0
"""Seconds from one report of an attempt to its next."""


class Coalescer:
    """What was said and has not been let through yet."""

    def __init__(self) -> None:
        self._waiting: dict[AttemptRef, Progress] = {}
        self._next_at: dict[AttemptRef, float] = {}

    def say(self, ref: AttemptRef, progress: Progress) -> bool:
        """Take in what an attempt says; False if it only replaces what is waiting already."""
        is_first = ref not in self._waiting
        self._waiting[ref] = progress
        return is_first

    def take(self, now: float) -> list[tuple[AttemptRef, Progress]]:
        """Return what is let through now, and count it as said."""
        due = [ref for ref in self._waiting if self._next_at.get(ref, now) <= now]
        for ref in due:
            self._next_at[ref] = now + EVERY
        return [(ref, self._waiting.pop(ref)) for ref in due]

    def put_back(self, ref: AttemptRef, progress: Progress) -> None:
        """Take back what could not be sent, unless something newer was said or all forgotten."""
        if ref in self._next_at:
            self._waiting.setdefault(ref, progress)

    def wait(self, now: float) -> float | None:
        """Return the seconds until something is let through; None while nothing is waiting."""
        if not self._waiting:
            return None
        return max(0.0, min(self._next_at.get(ref, now) for ref in self._waiting) - now)

    def forget(self, ref: AttemptRef) -> None:
        """Drop what an attempt has said."""
        self._waiting.pop(ref, None)
        self._next_at.pop(ref, None)
