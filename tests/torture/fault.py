"""The interface of a fault: it is injected into a cluster, lasts a while, and is healed.

Injecting and healing block until they are done; the runner calls them in threads. Each fault has a
criterion of recovery, the time from which recovery is measured, and a target.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tests.torture.cluster import Cluster


class Criterion(StrEnum):
    """The criterion by which a cluster has recovered."""

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

    INJECTED = "injected"
    HEALED = "healed"


def now() -> float:
    """Return the time of CLOCK_BOOTTIME, by which everything outside the cluster is recorded."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def do_nothing() -> None:
    """Do nothing: the fault needs no healing."""


@dataclass
class InjectedFault:
    """An injected fault, and how it is healed."""

    on: str
    duration: float = 0.0
    """Seconds after which it is to be healed."""
    undo: Callable[[], None] = do_nothing
    tasks: list[int] = field(default_factory=list)
    """Tasks that ran on the affected node and must be retried elsewhere."""
    term: int = 0
    """The term in which it was injected."""
    since: float | None = None
    """The time from which recovery is measured, if neither its beginning nor its end."""
    began: float = 0.0
    healed: float | None = None

    def heal(self) -> None:
        """Heal the fault; a second call does nothing."""
        if self.healed is None:
            self.undo()
            self.healed = now()


class Inject(Protocol):
    def __call__(self, cluster: Cluster, rng: random.Random) -> InjectedFault: ...


@dataclass(frozen=True)
class Fault:
    """A kind of fault, with its recovery target."""

    name: str
    kind: str
    """server, node, network, database, clock or disk."""
    injector: Inject
    criterion: Criterion
    target: float
    """Seconds within which the cluster has to recover."""
    since: Since

    def inject(self, cluster: Cluster, rng: random.Random) -> InjectedFault:
        """Inject the fault; the caller has to call `heal` on the result."""
        began = now()
        injected = self.injector(cluster, rng)
        injected.began = injected.began or began
        return injected

    def measured_from(self, injected: InjectedFault) -> float | None:
        """Return the time from which recovery is measured; None while it is unknown."""
        if injected.since is not None:
            return injected.since
        return injected.began if self.since is Since.INJECTED else injected.healed
