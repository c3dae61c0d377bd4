"""A measured figure, the limit that it is compared with, and its target."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

Sense = Literal["at least", "at most"]


class Target(msgspec.Struct, frozen=True):
    """The bound for a figure: for its ratio to the limit if it has one, else for its value."""

    sense: Sense
    bound: float

    def is_met(self, value: float) -> bool:
        """Return True if `value` is on the right side of the bound."""
        return value >= self.bound if self.sense == "at least" else value <= self.bound


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value; `limit` was measured in the same run, on the same machine."""

    part: str
    name: str
    value: float
    unit: str
    limit: float | None = None
    against: str = ""
    """What the limit is."""
    target: Target | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Return the figure as a share of its limit; None if it has no limit."""
        return self.value / self.limit if self.limit else None

    @property
    def is_met(self) -> bool | None:
        """Return whether the target is met; None if there is no target."""
        if self.target is None:
            return None
        return self.target.is_met(self.value if self.ratio is None else self.ratio)


def at_least(bound: float) -> Target:
    """Return a target that a figure must not fall below."""
    return Target("at least", bound)


def at_most(bound: float) -> Target:
    """Return a target that a figure must not exceed."""
    return Target("at most", bound)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * share), 1) - 1]


def median(values: Sequence[float]) -> float:
    """Return the median, which a single outlier does not move."""
    return percentile(values, 0.5)
