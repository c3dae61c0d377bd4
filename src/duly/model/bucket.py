"""A bucket of tokens: how many tasks a tenant may submit now, at its plan's rate."""

from datetime import datetime

import msgspec

HOUR = 3600.0


class Rate(msgspec.Struct, frozen=True):
    """How fast a bucket fills, and how much it holds."""

    tasks_per_hour: int
    burst: int

    @property
    def per_second(self) -> float:
        """Return the tokens that come in a second."""
        return self.tasks_per_hour / HOUR


class Bucket(msgspec.Struct, frozen=True):
    """The tokens that there were at `at`; one is taken for every task."""

    rate: Rate
    tokens: float
    at: datetime

    @property
    def whole(self) -> int:
        """Return how many tasks the tokens are enough for."""
        return int(self.tokens)

    def tokens_after(self, seconds: float) -> float:
        """Return how many there are after so many seconds in which nobody takes any."""
        return min(self.rate.burst, self.tokens + seconds * self.rate.per_second)

    def seconds_until(self, tokens: float) -> float:
        """Return how long it takes until there are as many, if nobody takes any; 0 if there are."""
        return max(0.0, tokens - self.tokens) / self.rate.per_second
