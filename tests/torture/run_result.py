"""The result of a run, from which the report and the timeline are made.

Times are seconds since the load began, by a clock that no fault affects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Episode:
    """A fault from its injection to its healing.

    `clock` is the criterion that has to be met within `target` seconds of `since`.
    """

    fault: str
    kind: str
    on: str
    """A description of what was affected."""
    hosts: tuple[str, ...]
    """The affected servers and nodes."""
    began: float
    healed: float
    lane: str = ""
    clock: str | None = None
    since: float = 0.0
    target: float = 0.0


@dataclass(frozen=True)
class Recovery:
    """The recovery time after a fault; None if the cluster did not recover."""

    fault: str
    clock: str
    since: float
    took: float | None
    target: float
    excuse: str | None = None
    """Another fault that excuses a longer time."""

    @property
    def is_in_time(self) -> bool:
        return self.is_within(self.target) or self.excuse is not None

    def is_within(self, seconds: float) -> bool:
        return self.took is not None and self.took <= seconds


@dataclass(frozen=True)
class Lease:
    """A lease of an attempt."""

    at: float
    term: int


@dataclass(frozen=True)
class Finding:
    """A violation, with the records around it."""

    message: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """The result of one run."""

    seed: int
    commit: str
    minutes: float
    seconds: float
    tasks: int
    calls: Mapping[str, int]
    """The number of calls of clients, by operation and outcome."""
    episodes: tuple[Episode, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    violations: tuple[Finding, ...] = ()
    event_times: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The times at which tasks were submitted, started and ended."""
    leases: tuple[Lease, ...] = ()

    @property
    def late(self) -> list[Recovery]:
        """The recoveries that missed their targets."""
        return [recovery for recovery in self.recoveries if not recovery.is_in_time]

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.late


def rates(times: Iterable[float], seconds: float, width: float) -> list[float]:
    """Return the number of events per second, in intervals of `width` seconds."""
    counts = [0] * (int(seconds / width) + 1)
    for at in times:
        if 0 <= at <= seconds:
            counts[int(at / width)] += 1
    return [count / width for count in counts]
