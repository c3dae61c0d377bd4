"""What runs attempts on a node, as the session sees it.

A session knows the servers and the state machine; an executor knows files and processes. An agent's
runs commands (`preparation/command_executor.py`), a worker's calls functions (`pool/`). It decides
nothing about the protocol: the state machine decides which attempts start and end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from duly.agent.local_attempt import LocalAttempt
from duly.agent.supervision.outcome import Conclusion, Exit
from duly.model.progress import Progress
from duly.wire import Assignment, AttemptRef, AttemptReport, Throttled

Sample = tuple[int, float, float | None, int | None]
"""Usage so far: number of the attempt, start time, CPU seconds, peak memory in bytes."""
Loop = Callable[[], Awaitable[None]]


class Listener(Protocol):
    """What an executor tells its session."""

    def exited(self, ref: AttemptRef, end: Exit) -> None:
        """Handle that the last process of an attempt has ended."""

    def fetched(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        """Handle that what an attempt needs is here, or why it cannot be."""

    def written(self, attempt: LocalAttempt, size: int) -> None:
        """Handle that a running attempt has written `size` bytes so far."""

    def measured(self, samples: Iterable[Sample]) -> None:
        """Handle the answer to `Executor.measure`."""

    def reported(self, attempt: LocalAttempt, report: Progress | Throttled) -> None:
        """Handle what a running attempt itself reported."""

    def heartbeat_soon(self) -> None:
        """Send a heartbeat now: what it says of this node has changed."""


class Executor(Protocol):
    """Prepares attempts, runs them, and collects their results and logs."""

    lost: asyncio.Event
    """Set when nothing controls the attempts on this node any more."""

    def connect(self, listener: Listener) -> None:
        """Tell `listener` what happens from now on."""

    def loops(self) -> Sequence[Loop]:
        """Return what has to run during each incarnation; cancelled at its end."""

    def needs_fetch(self, assignment: Assignment) -> bool:
        """Return True if something has to be fetched before the attempt can start."""

    def fetch(self, assignment: Assignment) -> None:
        """Fetch what the attempt needs, then tell that it is fetched."""

    def abandon(self, ref: AttemptRef) -> None:
        """Stop fetching, and remove what was fetched: the attempt will not start."""

    def start(self, ref: AttemptRef, assignment: Assignment | None) -> Exit | None:
        """Start an attempt, which was fetched if None is given; returns an Exit if that failed."""

    def terminate(self, ref: AttemptRef) -> None:
        """Interrupt an attempt, and kill it after its grace period."""

    def kill(self, ref: AttemptRef) -> None:
        """Kill an attempt now."""

    def freeze(self, ref: AttemptRef) -> None:
        """Suspend an attempt."""

    def thaw(self, ref: AttemptRef) -> None:
        """Resume an attempt."""

    def trust(self, until: float) -> None:
        """Let attempts run until then, even if this process hangs."""

    def flush(self) -> None:
        """Send queued commands now."""

    def measure(self, numbers: list[int]) -> None:
        """Measure running attempts, then tell the samples."""

    @property
    def running(self) -> Collection[LocalAttempt]:
        """The attempts that have started and not ended."""

    def by_id(self, number: int) -> LocalAttempt | None:
        """Return the attempt with this number, unless it has ended."""

    def find(self, ref: AttemptRef) -> LocalAttempt:
        """Return the attempt, which must have been started and not forgotten."""

    def report(self, ref: AttemptRef, conclusion: Conclusion) -> AttemptReport:
        """Build the report of an attempt that has ended."""

    def ended_at(self, ref: AttemptRef) -> float | None:
        """Return the monotonic time at which the attempt ended; None if it never began."""

    def forget(self, ref: AttemptRef) -> None:
        """Remove everything that this node still keeps of the attempt."""

    def offer(self) -> int | None:
        """Return the slots that the next heartbeat offers; None if the node offers none."""

    def renewed(self) -> None:
        """Tidy up, and count on it that the servers know what the last heartbeat said."""
