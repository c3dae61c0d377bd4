"""What an agent's state machine takes in, and what it asks for (`duly.agent.state`).

Events are what has happened; effects are what is to be done about it. Both are values, so
that a test can drive the whole protocol and compare. Each task has about ten of them, and a
struct is made in a fifth of the time that a frozen dataclass takes.
"""

import msgspec

from duly.agent.outcome import Conclusion, Exit
from duly.wire import AttemptRef, Stop


class Assigned(msgspec.Struct, frozen=True):
    """A server gave us an attempt; one with inputs or a bundle begins once we have them."""

    ref: AttemptRef
    has_inputs: bool = False


class Fetched(msgspec.Struct, frozen=True):
    """All that an attempt needs is here; or it cannot be had, which is how it ends."""

    ref: AttemptRef
    refusal: Conclusion | None = None


class Exited(msgspec.Struct, frozen=True):
    """Nothing of an attempt is running any more."""

    ref: AttemptRef
    end: Exit


class Renewed(msgspec.Struct, frozen=True):
    """Our lease was renewed by a heartbeat that left at `sent_at`; `stop` is no longer ours to run.

    Trust counts from before we asked: we give up no later than the server does, however slow
    its answer was.
    """

    sent_at: float
    ttl: float
    stop: tuple[Stop, ...] = ()


class StopOrdered(msgspec.Struct, frozen=True):
    """A server wants an attempt ended."""

    stop: Stop


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed."""


class StopRequested(msgspec.Struct, frozen=True):
    """The agent itself is to stop."""


class Fenced(msgspec.Struct, frozen=True):
    """Our incarnation is over: nothing that we say counts any more."""


class Answered(msgspec.Struct, frozen=True):
    """The report of an attempt was accepted, or found stale; either way it is over."""

    ref: AttemptRef


Event = (
    Assigned | Fetched | Exited | Renewed | StopOrdered | Ticked | StopRequested | Fenced | Answered
)


class Fetch(msgspec.Struct, frozen=True):
    """Get the bundle and the inputs of the attempt, which is not to be started before."""

    ref: AttemptRef


class Abandon(msgspec.Struct, frozen=True):
    """What was fetched for the attempt is not needed any more: it will not begin."""

    ref: AttemptRef


class Start(msgspec.Struct, frozen=True):
    """Run the attempt."""

    ref: AttemptRef


class Terminate(msgspec.Struct, frozen=True):
    """SIGTERM, the grace, SIGKILL."""

    ref: AttemptRef


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL to all of it, now."""

    ref: AttemptRef


class Freeze(msgspec.Struct, frozen=True):
    """Let nothing of the attempt run, and keep it."""

    ref: AttemptRef


class Thaw(msgspec.Struct, frozen=True):
    """Let it run on."""

    ref: AttemptRef


class Trust(msgspec.Struct, frozen=True):
    """Our attempts may run until then; the supervisor sees to it, even without us."""

    until: float


class Report(msgspec.Struct, frozen=True):
    """Tell a server how the attempt ended, again and again until it answers."""

    ref: AttemptRef
    conclusion: Conclusion


class Forget(msgspec.Struct, frozen=True):
    """Remove what is left of the attempt on this node."""

    ref: AttemptRef


class Rejoin(msgspec.Struct, frozen=True):
    """Nothing of the old incarnation is left: begin a new one."""


class Leave(msgspec.Struct, frozen=True):
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
