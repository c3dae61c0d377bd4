"""JSON types of tasks, their attempts, and pages.

They cost nothing at run time: a `Task` is the dictionary that the server sent, so fields that a
newer server adds are present too.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

Duration = float | str | timedelta
"""Seconds, "5m", "PT5M", or a timedelta."""
Instant = str | datetime
"""RFC 3339, or a timezone-aware datetime."""

FINAL_STATUSES = frozenset({"done", "failed", "cancelled"})
"""The terminal statuses; repeated here so that clients need not import the model."""


class ResourceFields(TypedDict, total=False):
    """Amounts of resources, by kind; in a task they override its tier."""

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
    """The limit of the tenant's concurrent attempts with one key."""

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
"""A key that must be unique among the tenant's live tasks."""

UniqueKey = TypedDict("UniqueKey", {"key": str, "while": str})
"""The unique key that a task holds, or held."""


class DependencyFields(TypedDict):
    """An upstream task and the condition on its end: success (default), failure or always."""

    task: str
    on: NotRequired[str | None]


class Dependency(TypedDict):
    """An upstream task and the condition on its end."""

    task: str
    on: str


class RetryFields(TypedDict, total=False):
    """How a task is retried; what is left out follows the server's settings."""

    delay: Duration | None
    max_delay: Duration | None
    no_retry_exit_codes: Sequence[int] | None


class RetryTerms(TypedDict):
    """How a task asked to be retried; delays are in seconds."""

    delay: float | None
    max_delay: float | None
    no_retry_exit_codes: list[int]


class CallFields(TypedDict):
    """A function that a worker calls, and its arguments, which must be JSON."""

    function: str
    args: NotRequired[Sequence[Any] | None]
    kwargs: NotRequired[Mapping[str, Any] | None]
    secret: NotRequired[Sequence[str | int] | None]


class Call(TypedDict):
    """The function that a task calls; secret arguments are "***", and large ones are None."""

    function: str
    args: list[Any] | None
    kwargs: dict[str, Any] | None
    secret: list[str | int]


class TaskFields(TypedDict, total=False):
    """A task to submit; fields that are left out get the plan's defaults."""

    name: str | None
    command: Sequence[str] | None
    script_path: str | None
    source: str | None
    call: CallFields | None
    artifact: str | None
    tier: str | None
    resources: ResourceFields | None
    delay_tolerance: Duration | None
    execution_cap: Duration | None
    max_attempts: int | None
    retry: RetryFields | None
    on_lost: Literal["retry", "fail"] | None
    on_overdue: Literal["wait", "cancel"] | None
    run_at: Instant | None
    idempotency_key: str | None
    env: Mapping[str, str] | None
    stdin: str | None
    labels: Mapping[str, str] | None
    requires: Mapping[str, str] | None
    category: str | None
    priority: int | None
    queue: str | None
    concurrency: Concurrency | None
    unique: UniqueFields | None
    uses: Sequence[str] | None
    ref: str | None
    depends_on: list[str | DependencyFields] | None


class Artifact(TypedDict):
    """An uploaded bundle."""

    sha256: str
    bytes: int
    created_at: str
    last_used_at: str


class TaskFilter(TypedDict, total=False):
    """Filters for tasks, combined with and.

    `status` is one or several; `labels` must all match; `since` is the earliest submission time, or
    a duration back from now such as "1h"; `node` is a node's name. `tenant` is another tenant, or
    for lists the only one, and needs the scope `admin`.
    """

    status: str | Sequence[str] | None
    name: str | None
    labels: Mapping[str, str] | None
    since: Instant | None
    user: str | None
    node: str | None
    tenant: str | None


class TaskListFilter(TaskFilter, total=False):
    """Filters for lists of tasks.

    `overdue` selects those that have waited past their delay tolerance; without a status, only
    those that still wait.
    """

    overdue: bool | None


class Reason(TypedDict):
    """A sentence for people and a code for programs."""

    code: str
    message: str
    details: dict[str, Any]


class Usage(TypedDict):
    """The resources that an attempt used."""

    cpu_seconds: float
    peak_memory_mb: float | None
    wall_seconds: float


class Progress(TypedDict):
    """The progress that a running attempt reported, from 0 to 1."""

    fraction: float
    text: str | None
    at: str


class Task(TypedDict):
    """A task; times are RFC 3339, durations are in seconds."""

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
    retry: RetryTerms | None
    on_lost: str
    on_overdue: str | None
    overdue: bool
    tier: str | None
    resources: Amounts
    execution_cap: float
    expected_run_time: float | None
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
    uses: list[str]
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
    call: Call | None
    stages: list[str]
    parent: str | None
    artifact: str | None
    env: dict[str, str] | None
    stdin: str | None


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


class Stage(TypedDict):
    """A part of a task that was done once, its result, and the attempt that did it."""

    name: str
    attempt: int
    recorded_at: str
    result: Any


class DeadLetter(Task):
    """A task that failed with no attempts left, its last attempt and the end of its log."""

    last_attempt: Attempt | None
    log_tail: str


class CancelCount(TypedDict):
    """How many tasks were cancelled; `more`: repeat for the rest."""

    cancelled: int
    more: bool


T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """A page of a list, newest first; pass `next_cursor` as `cursor` for the next one."""

    items: list[T]
    next_cursor: str | None


class TenantPage(TypedDict, Generic[T]):
    """A page of a list; `tenant` is whose items they are, None if those of all tenants."""

    items: list[T]
    next_cursor: str | None
    tenant: str | None
