"""Token buckets: how many tasks a tenant may submit now at its plan's rate."""

from datetime import datetime

import msgspec

SECONDS_PER_HOUR = 3600.0


class Rate(msgspec.Struct, frozen=True):
    """How fast a bucket fills, and how much it holds."""

    tasks_per_hour: int
    burst: int

    @property
    def per_second(self) -> float:
        """Return the tokens added per second."""
        return self.tasks_per_hour / SECONDS_PER_HOUR


class Bucket(msgspec.Struct, frozen=True):
    """The tokens at the time `at`; every task takes one."""

    rate: Rate
    tokens: float
    at: datetime

    @property
    def whole_tokens(self) -> int:
        """Return how many tasks the tokens are enough for."""
        return int(self.tokens)

    def tokens_after(self, seconds: float) -> float:
        """Return the tokens after `seconds` without a submission."""
        return min(self.rate.burst, self.tokens + seconds * self.rate.per_second)

    def seconds_until(self, tokens: float) -> float:
        """Return the seconds until the bucket holds `tokens`, without submissions; 0 if it does."""
        return max(0.0, tokens - self.tokens) / self.rate.per_second
