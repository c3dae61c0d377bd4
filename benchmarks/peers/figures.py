"""The results of a system, as values and as JSON."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Self

from benchmarks.peers.system import Broker


@dataclass(frozen=True, slots=True)
class Round:
    """Tasks per second, and the processes per second that the machine could start around it."""

    rate: float
    limit: float

    @property
    def share(self) -> float:
        """Return the rate as a share of the limit."""
        return self.rate / self.limit


def percentile(latencies: Sequence[float], share: float) -> float:
    """Return the latency that `share` of all did not exceed."""
    ordered = sorted(latencies)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Figures:
    """The measurements of one system."""

    rounds: tuple[Round, ...]
    latencies: tuple[float, ...]
    """Start latencies of single tasks, in milliseconds."""
    checked: int
    """The number of tasks that were checked to have run exactly once."""
    functions: tuple[float, ...] = ()
    """Calls per second of a function that does nothing, of systems that call functions."""
    function_latencies: tuple[float, ...] = ()
    """Start latencies of single calls, in milliseconds."""

    def percentile(self, share: float) -> float:
        """Return the latency that `share` of the tasks did not exceed."""
        return percentile(self.latencies, share)

    @property
    def function_rate(self) -> float | None:
        """Return the median rate of calls; None if it calls no functions."""
        return median(self.functions) if self.functions else None

    def function_percentile(self, share: float) -> float:
        """Return the latency that `share` of the calls did not exceed."""
        return percentile(self.function_latencies, share)

    @property
    def share(self) -> float:
        """Return the median share of the limit."""
        return median(measured_round.share for measured_round in self.rounds)

    @property
    def rate(self) -> float:
        """Return the median rate, in tasks per second."""
        return median(measured_round.rate for measured_round in self.rounds)

    @property
    def limit(self) -> float:
        """Return the median limit; a low one means that the machine was busy."""
        return median(measured_round.limit for measured_round in self.rounds)


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
    """True if the system did not do its work, rather than being unavailable."""

    @property
    def key(self) -> tuple[str, str]:
        """Return what identifies the row across runs."""
        return self.system, self.broker

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Decode a row from the JSON of `as_json`."""
        figures = data["figures"]
        return cls(
            **data
            | {
                "broker": Broker(data["broker"]),
                "versions": tuple(data["versions"]),
                "figures": figures and read_figures(figures),
            }
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row for a JSON file."""
        return asdict(self)


def read_figures(data: dict[str, Any]) -> Figures:
    """Decode figures from JSON."""
    rounds = tuple(Round(**fields) for fields in data["rounds"])
    return Figures(
        rounds,
        tuple(data["latencies"]),
        data["checked"],
        tuple(data.get("functions", ())),
        tuple(data.get("function_latencies", ())),
    )


def merge(old: list[Row], new: list[Row]) -> list[Row]:
    """Return the rows of both, where new rows replace old ones with the same key."""
    merged = {row.key: row for row in old} | {row.key: row for row in new}
    return list(merged.values())
