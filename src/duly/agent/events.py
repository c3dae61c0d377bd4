"""What an agent's state machine takes in, and what it asks for (`duly.agent.state`).

Events are what has happened; effects are what is to be done about it. Both are values, so
that a test can drive the whole protocol and compare.
"""

from dataclasses import dataclass

from duly.agent.outcome import Conclusion, Exit
from duly.wire import AttemptRef, Stop


@dataclass(frozen=True, slots=True)
class Assigned:
    """A server gave us an attempt; one with inputs or a bundle begins once we have them."""

    ref: AttemptRef
    has_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """All that an attempt needs is here; or it cannot be had, which is how it ends."""

    ref: AttemptRef
    refusal: Conclusion | None = None


@dataclass(frozen=True, slots=True)
class Exited:
    """Nothing of an attempt is running any more."""

    ref: AttemptRef
    end: Exit


@dataclass(frozen=True, slots=True)
class Renewed:
    """Our lease was renewed by a heartbeat that left at `sent_at`; `stop` is no longer ours to run.

    Trust counts from before we asked: we give up no later than the server does, however slow
    its answer was.
    """

    sent_at: float
    ttl: float
    stop: tuple[Stop, ...] = ()


@dataclass(frozen=True, slots=True)
class StopOrdered:
    """A server wants an attempt ended."""

    stop: Stop


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The agent itself is to stop."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Our incarnation is over: nothing that we say counts any more."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The report of an attempt was accepted, or found stale; either way it is over."""

    ref: AttemptRef


Event = (
    Assigned | Fetched | Exited | Renewed | StopOrdered | Ticked | StopRequested | Fenced | Answered
)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Get the bundle and the inputs of the attempt, which is not to be started before."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Abandon:
    """What was fetched for the attempt is not needed any more: it will not begin."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Start:
    """Run the attempt."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM, the grace, SIGKILL."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to all of it, now."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Freeze:
    """Let nothing of the attempt run, and keep it."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Thaw:
    """Let it run on."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Trust:
    """Our attempts may run until then; the supervisor sees to it, even without us."""

    until: float


@dataclass(frozen=True, slots=True)
class Report:
    """Tell a server how the attempt ended, again and again until it answers."""

    ref: AttemptRef
    conclusion: Conclusion


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove what is left of the attempt on this node."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Nothing of the old incarnation is left: begin a new one."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is held any more, and the agent was told to stop."""


Effect = (
    Fetch
    | Abandon
    | Start
    | Terminate
    | Kill
    | Freeze
    | Thaw
    | Trust
    | Report
    | Forget
    | Rejoin
    | Leave
)
