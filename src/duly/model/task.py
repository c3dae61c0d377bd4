"""A task: what a client submits, and what becomes of it.

`TaskSpec` is what was asked for, with every default filled in; it never changes
once stored (an update of a waiting task stores another). Where the task is now is
a `Status`; how one try at running it ended is an `Outcome`.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from duly.model.graph import Dependency
from duly.model.queue import Queue
from duly.model.resources import Resources
from duly.model.shape import Concurrency, Shape


class Status(StrEnum):
    """Where a task is."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})
NOT_STARTED = frozenset({Status.SCHEDULED, Status.BLOCKED, Status.WAITING, Status.PAUSED})
"""What does not run, be it that it never did or that it is to be tried again."""


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CAPPED = "capped"
    OVERUSED = "overused"
    LOST = "lost"
    PREEMPTED = "preempted"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class OnLost(StrEnum):
    """What becomes of a task that was lost with its node, perhaps half done."""

    RETRY = "retry"
    FAIL = "fail"


class Lasts(StrEnum):
    """How long a task holds its unique key."""

    WAITING = "waiting"
    """Until it first starts."""
    LIVE = "live"
    """Until it has ended."""


class OnConflict(StrEnum):
    """What is done for whoever asks for a unique key that is held."""

    REFUSE = "refuse"
    RETURN = "return"


class Unique(msgspec.Struct, frozen=True):
    """A key that one task of the tenant holds at a time."""

    key: str
    lasts: Lasts = msgspec.field(default=Lasts.LIVE, name="while")
    on_conflict: OnConflict = OnConflict.REFUSE


class Reason(msgspec.Struct, frozen=True):
    """One sentence for people and a low-cardinality code for programs."""

    code: str
    message: str
    details: dict[str, Any] = {}


class Tally(msgspec.Struct, frozen=True):
    """How often a task has failed by its own fault, and been lost by ours."""

    failures: int
    losses: int


class LostStarts(msgspec.Struct, frozen=True):
    """Who was lost with a task before anybody had heard that it had begun there."""

    nodes: int = 0
    incarnations: int = 0
    cluster: int = 0
    """How many nodes there are, lost or not, to have it in common."""


NO_LOST_STARTS = LostStarts()


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be run: exactly one of `command`, `script_path` and `source`.

    With an `artifact`, which only a command can have, it is run in what that unpacks to.
    """

    command: list[str] | None = None
    script_path: str | None = None
    source: str | None = None
    env: dict[str, str] = {}
    category: str | None = None
    """What kind of work it is. Nothing decides by it, so it has no column, and costs none."""
    log_limit: int | None = None
    """Bytes of output that are kept of an attempt, if the plan bounds them."""
    result_limit: int | None = None
    """Bytes that the result may have, if the plan bounds them."""
    cpu_quota: bool = False
    """Whether the plan lets it have no more cpu than it asked for."""
    artifact: str | None = None
    """The bundle that it needs: the SHA-256 of its bytes, in lower-case hex."""
    has_upstreams: bool = False
    """Whether it depends on others, whose results it may find; whoever starts it then looks."""

    def log_bytes(self, most: int) -> int:
        """Return how much output is kept, where nobody has more than `most`."""
        return most if self.log_limit is None else min(self.log_limit, most)

    def result_bytes(self, most: int) -> int:
        """Return how large the result may be, where nobody has more than `most`."""
        return most if self.result_limit is None else min(self.result_limit, most)


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, complete: every default of the tenant's plan is filled in."""

    name: str | None
    payload: Payload
    tier: str | None
    resources: Resources
    delay_tolerance: timedelta
    execution_cap: timedelta
    max_attempts: int
    on_lost: OnLost
    run_at: datetime | None
    idempotency_key: str | None
    labels: dict[str, str]
    priority: int
    requires: dict[str, str] = {}
    """The labels of the nodes that it may run on."""
    replay_of: int | None = None
    concurrency: Concurrency | None = None
    unique: Unique | None = None
    ref: str | None = None
    """What others that are submitted with it call it."""
    depends_on: list[Dependency] = []
    queue: Queue | None = None
    """Asked for, or `periodic` for what a schedule has produced."""

    @property
    def has_key(self) -> bool:
        """Say whether it may turn out to be there already: by its own key, or a unique one."""
        return self.idempotency_key is not None or self.unique is not None

    @property
    def shape(self) -> Shape:
        """Return what decides where and when it may run."""
        return Shape(self.resources, self.requires, self.concurrency, self.queue)


class Usage(msgspec.Struct, frozen=True):
    """What an attempt used, as measured by its agent."""

    cpu_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    wall_seconds: float = 0.0
