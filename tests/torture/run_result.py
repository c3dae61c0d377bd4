"""The result of a run as values, from which the report and the timeline are made.

Times are seconds since the load began, by a clock that no fault can move.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Episode:
    """A fault from its beginning until nothing holds it up any more.

    `clock` names what has to work again within `target` seconds of `since`.
    """

    fault: str
    kind: str
    on: str
    """What was hit, in words."""
    hosts: tuple[str, ...]
    """The servers and nodes among that."""
    began: float
    healed: float
    lane: str = ""
    clock: str | None = None
    since: float = 0.0
    target: float = 0.0


@dataclass(frozen=True)
class Recovery:
    """How long something took to work again after a fault, None when it never did."""

    fault: str
    clock: str
    since: float
    took: float | None
    target: float
    excuse: str | None = None
    """The other fault because of which it may have taken longer."""

    @property
    def is_in_time(self) -> bool:
        return self.is_within(self.target) or self.excuse is not None

    def is_within(self, seconds: float) -> bool:
        return self.took is not None and self.took <= seconds


@dataclass(frozen=True)
class Lease:
    """An attempt that was given to a node."""

    at: float
    term: int


@dataclass(frozen=True)
class Finding:
    """Something that must not have happened, with what was written down around it."""

    message: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """Everything about one run."""

    seed: int
    commit: str
    minutes: float
    seconds: float
    tasks: int
    calls: Mapping[str, int]
    """How many calls of the clients ended how."""
    episodes: tuple[Episode, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    violations: tuple[Finding, ...] = ()
    happenings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """When tasks were submitted, started and ended."""
    leases: tuple[Lease, ...] = ()

    @property
    def late(self) -> list[Recovery]:
        """The recoveries that missed their targets."""
        return [one for one in self.recoveries if not one.is_in_time]

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.late


def rates(instants: Iterable[float], seconds: float, width: float) -> list[float]:
    """Return how many there are per second, in steps of `width` seconds."""
    counts = [0] * (int(seconds / width) + 1)
    for at in instants:
        if 0 <= at <= seconds:
            counts[int(at / width)] += 1
    return [count / width for count in counts]
