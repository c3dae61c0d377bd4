"""Distributions of run times, by the figures that operators know."""

from math import exp, log
from random import Random

import msgspec

Z95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """Every task runs for the same time."""

    seconds: float

    def draw(self, rng: Random) -> float:
        """Return a run time in seconds."""
        return self.seconds


class Uniform(msgspec.Struct, frozen=True, tag="uniform"):
    """Run times between two bounds."""

    low: float
    high: float

    def draw(self, rng: Random) -> float:
        """Return a run time in seconds."""
        return self.low + (self.high - self.low) * rng.random()


class Exponential(msgspec.Struct, frozen=True, tag="exponential"):
    """Run times without memory."""

    mean: float

    def draw(self, rng: Random) -> float:
        """Return a run time in seconds."""
        return rng.expovariate(1 / self.mean)


class LogNormal(msgspec.Struct, frozen=True, tag="lognormal"):
    """Run times with a long tail: half are below the median, 5 % above the 95th percentile."""

    median: float
    p95: float

    def draw(self, rng: Random) -> float:
        """Return a run time in seconds."""
        sigma = log(self.p95 / self.median) / Z95
        return self.median * exp(sigma * rng.gauss(0.0, 1.0))


RunTime = Constant | Uniform | Exponential | LogNormal
