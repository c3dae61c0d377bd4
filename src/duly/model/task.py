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
from duly.model.resources import Resources
from duly.model.shape import Concurrency, FunctionRef, Shape


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


FINAL_STATUSES = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})
NOT_RUNNING = frozenset({Status.SCHEDULED, Status.BLOCKED, Status.WAITING, Status.PAUSED})
"""Statuses of tasks that are not running now: never started, or to be retried."""


STATUS_CLAUSES = {Status.FAILED: "has failed", Status.CANCELLED: "was cancelled"}


def status_clause(status: Status) -> str:
    """Return a status as the rest of a sentence about a task: "is waiting", "has failed"."""
    return STATUS_CLAUSES.get(status, f"is {status}")


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
    """What happens to a task lost with its node, perhaps half done."""

    RETRY = "retry"
    FAIL = "fail"


class OnOverdue(StrEnum):
    """What happens to a task that has waited past its delay tolerance."""

    WAIT = "wait"
    CANCEL = "cancel"


class UniqueWhile(StrEnum):
    """How long a task holds its unique key."""

    WAITING = "waiting"
    """Until it first starts."""
    LIVE = "live"
    """Until it has ended."""


class OnConflict(StrEnum):
    """What happens to a submission whose unique key is held by another task."""

    REFUSE = "refuse"
    RETURN = "return"


class Unique(msgspec.Struct, frozen=True):
    """A key that one task of the tenant holds at a time."""

    key: str
    holds_while: UniqueWhile = msgspec.field(default=UniqueWhile.LIVE, name="while")
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
    """Nodes and agents lost before they reported that a task had started."""

    nodes: int = 0
    incarnations: int = 0
    cluster: int = 0
    """The number of nodes in the cluster, lost or not."""


NO_LOST_STARTS = LostStarts()


MAX_RETRY_DELAY = timedelta(days=30)


class RetryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How a task asked to be retried; what is unset follows the server's settings.

    Delays are in seconds, as they are stored.
    """

    delay: float | None = None
    max_delay: float | None = None
    no_retry_exit_codes: list[int] = []


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that a worker of the tenant calls.

    `arguments` is the JSON of its `args` and `kwargs`, passed through as it was given; it is empty
    if the payload's artifact has them. `secret` names those that no answer shows.
    """

    function: str
    arguments: str = ""
    secret: tuple[int | str, ...] = ()
    memory_mb: int = 0
    """The memory that was asked for; not enforced, because calls share their process."""


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be run: exactly one of `command`, `script_path`, `source` and `call`.

    A command with an `artifact` is run in what that unpacks to; a call has its arguments in it.
    """

    command: list[str] | None = None
    script_path: str | None = None
    source: str | None = None
    call: Call | None = None
    env: dict[str, str] = {}
    category: str | None = None
    """The kind of work; no decision depends on it, so it has no column."""
    log_limit: int | None = None
    """Maximum bytes of output kept per attempt, if the plan limits them."""
    result_limit: int | None = None
    """Maximum bytes of the result, if the plan limits them."""
    cpu_quota: bool = False
    """Whether the plan caps its cpu at what it requested."""
    artifact: str | None = None
    """The bundle that it needs: the SHA-256 of its bytes, in lower-case hex."""
    has_upstreams: bool = False
    """Whether it has upstreams, whose results the agent fetches before it starts."""
    stdin: str | None = None
    """The standard input of every attempt; without it, that is empty."""
    retry: RetryTerms | None = None
    """Its own backoff, if requested; read only when an attempt fails, so it has no column."""
    on_overdue: OnOverdue = OnOverdue.WAIT
    """Read only when the task is overdue, so it has no column."""
    uses: tuple[str, ...] = ()
    """The keys of the downstreams that it calls, sorted; also part of its shape."""

    def log_bytes(self, server_limit: int) -> int:
        """Return the bytes of output to keep, at most `server_limit`."""
        return server_limit if self.log_limit is None else min(self.log_limit, server_limit)

    def result_bytes(self, server_limit: int) -> int:
        """Return the maximum bytes of the result, at most `server_limit`."""
        return server_limit if self.result_limit is None else min(self.result_limit, server_limit)


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted task with every default of the tenant's plan filled in."""

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
    """The labels that a node must have to run it."""
    replay_of: int | None = None
    concurrency: Concurrency | None = None
    unique: Unique | None = None
    ref: str | None = None
    """The name by which tasks of the same request depend on it."""
    depends_on: list[Dependency] = []
    queue: str | None = None
    """The requested queue, or `periodic` for an occurrence of a schedule."""
    user_id: int | None = None
    """Its user, if the users of its tenant divide the tenant's fair share; 0 for a key without."""
    tenant_id: int | None = None
    """Its tenant, if it is a call: only that tenant's workers can run it."""

    @property
    def has_key(self) -> bool:
        """Return True if an idempotency or unique key may match an existing task."""
        return self.idempotency_key is not None or self.unique is not None

    @property
    def shape(self) -> Shape:
        """Return the shape, which decides where and when it may run."""
        return Shape(
            self.resources,
            self.requires,
            self.concurrency,
            self.queue,
            self.user_id,
            self.payload.uses,
            self._function,
        )

    @property
    def _function(self) -> FunctionRef | None:
        call = self.payload.call
        return None if call is None else FunctionRef(self.tenant_id or 0, call.function)


class Usage(msgspec.Struct, frozen=True):
    """What an attempt used, as measured by its agent."""

    cpu_seconds: float = 0.0
    peak_memory_mb: float | None = None
    """None if it is unknown, as of short tasks on a node without cgroups."""
    wall_seconds: float = 0.0
