"""The events and effects of the agent's state machine (`duly.agent.state`).

Both are plain values, so a test can drive the whole protocol and compare. They are structs
because every task takes about ten of them, and a struct is created in a fifth of the time that
a frozen dataclass takes.
"""

import msgspec

from duly.agent.supervision.outcome import Conclusion, Exit
from duly.wire import AttemptRef, Stop


class Assigned(msgspec.Struct, frozen=True):
    """A server assigned an attempt; one with inputs or a bundle starts once they are fetched."""

    ref: AttemptRef
    needs_fetch: bool = False


class Fetched(msgspec.Struct, frozen=True):
    """The bundle and inputs of an attempt are here, or `refusal` says why they cannot be."""

    ref: AttemptRef
    refusal: Conclusion | None = None


class Exited(msgspec.Struct, frozen=True):
    """The last process of an attempt has ended."""

    ref: AttemptRef
    end: Exit


class Renewed(msgspec.Struct, frozen=True):
    """A heartbeat sent at `sent_at` renewed the lease; the server wants `stop` ended.

    The lease counts from when the request was sent: the agent gives it up no later than the
    server does, however slow the response was.
    """

    sent_at: float
    ttl: float
    stop: tuple[Stop, ...] = ()


class StopOrdered(msgspec.Struct, frozen=True):
    """A server wants an attempt stopped."""

    stop: Stop


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed."""


class StopRequested(msgspec.Struct, frozen=True):
    """The agent was asked to shut down."""


class Fenced(msgspec.Struct, frozen=True):
    """A server refused this incarnation: its lease was lost, and its reports are ignored."""


class ReportAnswered(msgspec.Struct, frozen=True):
    """The report of an attempt was accepted or found stale; either way the attempt is over."""

    ref: AttemptRef


Event = (
    Assigned
    | Fetched
    | Exited
    | Renewed
    | StopOrdered
    | Ticked
    | StopRequested
    | Fenced
    | ReportAnswered
)


class Fetch(msgspec.Struct, frozen=True):
    """Fetch the bundle and the inputs of the attempt, then send `Fetched`."""

    ref: AttemptRef


class Abandon(msgspec.Struct, frozen=True):
    """Stop fetching, and remove what was fetched: the attempt will not start."""

    ref: AttemptRef


class Start(msgspec.Struct, frozen=True):
    """Start the attempt."""

    ref: AttemptRef


class Terminate(msgspec.Struct, frozen=True):
    """Send SIGTERM, and SIGKILL after the grace period."""

    ref: AttemptRef


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL to every process of the attempt now."""

    ref: AttemptRef


class Freeze(msgspec.Struct, frozen=True):
    """Suspend every process of the attempt."""

    ref: AttemptRef


class Thaw(msgspec.Struct, frozen=True):
    """Resume a frozen attempt."""

    ref: AttemptRef


class Trust(msgspec.Struct, frozen=True):
    """Attempts may run until then; the supervisor enforces it even if the agent hangs."""

    until: float


class Report(msgspec.Struct, frozen=True):
    """Report the outcome of the attempt, and retry until a server answers."""

    ref: AttemptRef
    conclusion: Conclusion


class Forget(msgspec.Struct, frozen=True):
    """Remove everything that this node still keeps of the attempt."""

    ref: AttemptRef


class Rejoin(msgspec.Struct, frozen=True):
    """Nothing of the fenced incarnation is left: join as a new one."""


class Leave(msgspec.Struct, frozen=True):
    """The agent is stopping and holds no attempts any more."""


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
