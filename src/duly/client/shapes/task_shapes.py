"""The shapes of what the API takes and answers, as types for JSON.

They cost nothing at run time: a `Task` is the dictionary that the server sent,
so whatever it adds later is there too.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

Duration = float | str | timedelta
"""Seconds, "5m", "PT5M", or a timedelta."""
Instant = str | datetime
"""RFC 3339, or a datetime that knows its offset."""

FINAL = frozenset({"done", "failed", "cancelled"})
"""The statuses that no task leaves; repeated here to spare clients the import of the model."""


class ResourceFields(TypedDict, total=False):
    """Amounts that replace those of the tier, kind by kind."""

    cpu: float | None
    memory_mb: int | None
    memory: str | None
    disk_mb: int | None
    disk: str | None
    iops: int | None
    bandwidth_mbps: int | None
    ports: int | None
    extra: Mapping[str, int] | None


class Amounts(TypedDict):
    """An amount of every kind of resource."""

    cpu: float
    memory_mb: int
    disk_mb: int
    iops: int
    bandwidth_mbps: int
    ports: int
    extra: dict[str, int]


class Concurrency(TypedDict):
    """How many attempts of the tenant may run at once under a key."""

    key: str
    limit: int


UniqueFields = TypedDict(
    "UniqueFields",
    {
        "key": str,
        "while": NotRequired[Literal["waiting", "live"] | None],
        "on_conflict": NotRequired[Literal["refuse", "return"] | None],
    },
)
"""What is to be there once among the tenant's live tasks."""

UniqueKey = TypedDict("UniqueKey", {"key": str, "while": str})
"""The key that a task holds, or held, alone."""


class DependencyFields(TypedDict):
    """A task that must end first, and how: success unless said, failure or always."""

    task: str
    on: NotRequired[str | None]


class Dependency(TypedDict):
    """A task that must end first, and how."""

    task: str
    on: str


class TaskFields(TypedDict, total=False):
    """What a client may say of a task; what is left out gets the plan's default."""

    name: str | None
    command: Sequence[str] | None
    script_path: str | None
    source: str | None
    artifact: str | None
    tier: str | None
    resources: ResourceFields | None
    delay_tolerance: Duration | None
    execution_cap: Duration | None
    max_attempts: int | None
    on_lost: Literal["retry", "fail"] | None
    run_at: Instant | None
    idempotency_key: str | None
    env: Mapping[str, str] | None
    labels: Mapping[str, str] | None
    requires: Mapping[str, str] | None
    category: str | None
    priority: int | None
    queue: Literal["urgent", "off_peak"] | None
    concurrency: Concurrency | None
    unique: UniqueFields | None
    ref: str | None
    depends_on: list[str | DependencyFields] | None


class Artifact(TypedDict):
    """A bundle that was uploaded, and when somebody last needed it."""

    sha256: str
    bytes: int
    created_at: str
    last_used_at: str


class TaskFilter(TypedDict, total=False):
    """Which tasks are meant; all that is given must hold.

    `status` may be one or several; `labels` must all be there; `since` is the time of submission,
    or how long ago it may be at most, as "1h"; `node` is the name of a node.
    """

    status: str | Sequence[str] | None
    name: str | None
    labels: Mapping[str, str] | None
    since: Instant | None
    user: str | None
    node: str | None


class Reason(TypedDict):
    """One sentence for people and a code for programs."""

    code: str
    message: str
    details: dict[str, Any]


class Usage(TypedDict):
    """What an attempt used."""

    cpu_seconds: float
    peak_memory_mb: float
    wall_seconds: float


class Progress(TypedDict):
    """How far a running attempt said that it had come, from 0 to 1, and when."""

    fraction: float
    text: str | None
    at: str


class Task(TypedDict):
    """A task as the server tells it; times are RFC 3339, durations are seconds."""

    id: str
    name: str | None
    status: str
    tenant: str
    user: str | None
    queue: str
    scheduling_type: str
    submitted_at: str
    ready_at: str
    start_by: str
    must_start_by: str | None
    started_at: str | None
    finished_at: str | None
    attempt: int
    failures: int
    losses: int
    max_attempts: int
    on_lost: str
    tier: str | None
    resources: Amounts
    execution_cap: float
    delay_tolerance: float
    run_at: str | None
    priority: int
    node: str | None
    exit_code: int | None
    outcome: str | None
    reason: Reason | None
    quote: dict[str, float] | None
    depends_on: list[str | Dependency]
    ref: str | None
    graph: str | None
    schedule: str | None
    fire_at: str | None
    labels: dict[str, str]
    requires: dict[str, str]
    category: str | None
    concurrency: Concurrency | None
    idempotency_key: str | None
    replay_of: str | None
    unique: UniqueKey | None
    admitted_by: str | None
    usage: Usage | None
    enforcement: dict[str, str] | None
    progress: Progress | None
    command: list[str] | None
    script_path: str | None
    source: str | None
    artifact: str | None
    env: dict[str, str] | None


class Attempt(TypedDict):
    """One try at running a task."""

    attempt: int
    node: str | None
    outcome: str | None
    exit_code: int | None
    reason: Reason | None
    leased_at: str
    started_at: str | None
    finished_at: str | None
    usage: Usage | None


class DeadLetter(Task):
    """A task that failed for good, with its last attempt and the end of its log."""

    last_attempt: Attempt | None
    log_tail: str


class Cancelled(TypedDict):
    """How many tasks were cancelled; with `more` there are others left, for another call."""

    cancelled: int
    more: bool


TokenUses = int | Literal["unlimited"]
"""How many new nodes a join token admits."""


class NodeToken(TypedDict):
    """What a new node joins with; it is told only this once."""

    token: str
    expires_at: str
    uses: TokenUses


class Node(TypedDict):
    """A machine that runs tasks."""

    id: str
    name: str
    status: str
    capacity: Amounts
    free: Amounts
    labels: dict[str, str]
    last_heartbeat_at: str | None
    tasks: int
    enforcement: dict[str, str]
    shortage: str | None


class Duty(TypedDict):
    """What a server leads, and in which term."""

    name: str
    term: int


class Server(TypedDict):
    """One of the servers."""

    id: str
    name: str
    status: str
    version: str
    started_at: str
    last_heartbeat_at: str
    duties: list[Duty]


class Allocation(TypedDict):
    """Part of a node that a tenant has: for a task that runs, or reserved."""

    id: str
    kind: str
    tenant: str
    node: str
    resources: Amounts
    task: str | None
    expires_at: str | None


class UsageRow(TypedDict):
    """What was used in one place; what was not told apart is None."""

    day: str | None
    tenant: str | None
    user: str | None
    tier: str | None
    urgency: str | None
    tasks: int
    attempts: int
    cpu_seconds: float
    granted_cpu_seconds: float
    granted_memory_mb_seconds: float
    price: str


class UsageTold(TypedDict):
    """What was used from one day to another, both included."""

    since: str
    until: str
    items: list[UsageRow]
    total: UsageRow
    next_cursor: str | None


class Drift(TypedDict):
    """How many things of one kind are not as they should be."""

    kind: str
    count: int
    message: str
    examples: list[str]


class Audit(TypedDict):
    """What the self-audit has found."""

    completed_at: str | None
    history_completed_at: str | None
    drift: list[Drift]
    repaired: int
    repaired_at: str | None


class Database(TypedDict):
    """What is known of the database, and whether it keeps the tenants of requests apart."""

    version: str
    row_security: bool


class TaskCounts(TypedDict):
    """How many tasks are in each status; final ones of the last hours."""

    scheduled: int
    blocked: int
    waiting: int
    running: int
    paused: int
    done: int
    failed: int
    cancelled: int


class NodeCounts(TypedDict):
    """How many nodes are in each status."""

    ready: int
    draining: int
    drained: int
    lost: int


class Status(TypedDict):
    """The whole of Duly at a glance."""

    version: str
    server: str
    database: Database
    tasks: TaskCounts
    nodes: NodeCounts
    capacity: Amounts
    free: Amounts
    leader: str | None
    time: str
    window_hours: int
    audit: Audit


T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """Part of a list, newest first; `next_cursor` asks for the rest."""

    items: list[T]
    next_cursor: str | None
