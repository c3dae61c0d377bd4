"""The interface of a fault: it is injected into a cluster, lasts a while, and is healed.

Inflicting and healing block until they are done; a runner calls them in threads of its
own. Each fault says by which clock its recovery is measured, from when, and how long
that may take.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tests.torture.cluster import Cluster


class Recovered(StrEnum):
    """What has happened when a cluster is said to be well again."""

    DISPATCH = "dispatch"
    """A task has been leased in a later term."""
    RERUN = "rerun"
    """A task that ran on the node has started elsewhere."""
    SUBMIT = "submit"
    """A task has been submitted and acknowledged."""
    CONVERGED = "converged"
    """Every node holds a lease, a server leads, and tasks start."""


class Since(StrEnum):
    """From when recovery is measured."""

    INFLICTED = "inflicted"
    HEALED = "healed"


def now() -> float:
    """Return the time of this machine by which everything outside the cluster is noted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def nothing() -> None:
    """Undo what needs no undoing."""


@dataclass
class Inflicted:
    """A fault that has happened, and how it is undone."""

    on: str
    lasts: float = 0.0
    """Seconds after which it should be healed."""
    undo: Callable[[], None] = nothing
    tasks: list[int] = field(default_factory=list)
    """What ran where it happened, as far as somebody else must run it again."""
    term: int = 0
    """The term in which it happened."""
    since: float | None = None
    """From when recovery is measured, if that is neither its beginning nor its end."""
    began: float = 0.0
    healed: float | None = None

    def heal(self) -> None:
        """Undo it; the second time nothing is done."""
        if self.healed is None:
            self.undo()
            self.healed = now()


class Inflict(Protocol):
    def __call__(self, cluster: Cluster, dice: random.Random) -> Inflicted: ...


@dataclass(frozen=True)
class Fault:
    """One way in which things go wrong."""

    name: str
    kind: str
    """server, node, network, database, clock or disk."""
    do: Inflict
    recovered: Recovered
    target: float
    """Seconds."""
    since: Since

    def inflict(self, cluster: Cluster, dice: random.Random) -> Inflicted:
        """Let it happen; whoever calls this calls `heal` of what is returned later on."""
        began = now()
        inflicted = self.do(cluster, dice)
        inflicted.began = inflicted.began or began
        return inflicted

    def clock_starts(self, inflicted: Inflicted) -> float | None:
        """Return from when recovery is measured; None while that is not yet known."""
        if inflicted.since is not None:
            return inflicted.since
        return inflicted.began if self.since is Since.INFLICTED else inflicted.healed
