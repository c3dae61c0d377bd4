"""How much an attempt may say: so many connections at once, and so many lines a second."""

from dataclasses import dataclass

MOST_CONNECTIONS = 4
MOST_LINES = 1000
"""A second; what is more than that waits."""


@dataclass(slots=True)
class Speaker:
    """What an attempt that has connected has said of late."""

    connections: int = 0
    since: float = float("-inf")
    lines: int = 0

    def pause(self, said: int, now: float) -> float:
        """Count what was said, and return the seconds until more may be."""
        if now - self.since >= 1.0:
            self.since, self.lines = now, 0
        self.lines += said
        return self.since + 1.0 - now if self.lines > MOST_LINES else 0.0
