"""The figures of a system, as values and as JSON."""

import math
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Self

from benchmarks.peers.system import Broker


@dataclass(frozen=True, slots=True)
class Round:
    """Tasks a second, and how many processes a second the machine started just before and after."""

    rate: float
    limit: float

    @property
    def share(self) -> float:
        """Return how much of the limit was reached."""
        return self.rate / self.limit


@dataclass(frozen=True, slots=True)
class Figures:
    """What one system reached."""

    rounds: tuple[Round, ...]
    latencies: tuple[float, ...]
    """Milliseconds to the start of a task, one at a time."""
    checked: int
    """How many tasks ran, each exactly once."""

    def percentile(self, share: float) -> float:
        """Return the latency that `share` of the tasks did not exceed."""
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    @property
    def share(self) -> float:
        """Return the middle round's share of the limit."""
        return median(each.share for each in self.rounds)

    @property
    def rate(self) -> float:
        """Return the middle of the rates: tasks a second."""
        return median(each.rate for each in self.rounds)

    @property
    def limit(self) -> float:
        """Return the middle of the limits: a low one tells of a machine that was not quiet."""
        return median(each.limit for each in self.rounds)


@dataclass(frozen=True, slots=True)
class Row:
    """One system with one broker: its figures, or why there are none."""

    system: str
    broker: Broker
    commit: str
    measured_at: str
    versions: tuple[str, ...] = ()
    figures: Figures | None = None
    left_out: str = ""
    is_failure: bool = False
    """Not left out for want of something: it did not do what was asked."""

    @property
    def key(self) -> tuple[str, str]:
        """Return what makes it the same row in another run."""
        return self.system, self.broker

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """Read a row from the JSON that `as_json` made."""
        figures = kept["figures"]
        return cls(
            **kept
            | {
                "broker": Broker(kept["broker"]),
                "versions": tuple(kept["versions"]),
                "figures": figures and read_figures(figures),
            }
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row for a JSON file."""
        return asdict(self)


def read_figures(kept: dict[str, Any]) -> Figures:
    """Read figures from JSON."""
    rounds = tuple(Round(**each) for each in kept["rounds"])
    return Figures(rounds, tuple(kept["latencies"]), kept["checked"])


def merge(old: list[Row], new: list[Row]) -> list[Row]:
    """Return the rows of both, where a new one takes the place of an old one."""
    merged = {row.key: row for row in old} | {row.key: row for row in new}
    return list(merged.values())
