"""Limits the connections and the lines per second of an attempt on the task socket."""

from dataclasses import dataclass

MAX_CONNECTIONS = 4
MAX_LINES_PER_SECOND = 1000
"""Further lines wait."""


@dataclass(slots=True)
class TaskRateLimiter:
    """The connections of an attempt, and its lines in the current second."""

    connections: int = 0
    since: float = float("-inf")
    lines: int = 0

    def pause(self, said: int, now: float) -> float:
        """Count `said` lines, and return the seconds until more may be read."""
        if now - self.since >= 1.0:
            self.since, self.lines = now, 0
        self.lines += said
        return self.since + 1.0 - now if self.lines > MAX_LINES_PER_SECOND else 0.0
