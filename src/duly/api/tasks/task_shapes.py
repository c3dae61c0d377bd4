"""The JSON of tasks and errors in responses, which clients rely on.

Ids are strings, times are UTC, durations are seconds. Every field is always present; one that has
no value yet is null.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from duly.config import SchedulingSettings
from duly.model.graph import Condition, Dependency
from duly.model.requests.call_request import call_as_request
from duly.model.resources import Resources
from duly.model.shape import Concurrency
from duly.model.task import (
    Outcome,
    Payload,
    Reason,
    RetryTerms,
    Status,
    TaskSpec,
    Unique,
    UniqueWhile,
    Usage,
)
from duly.model.tenant import Credential
from duly.policy.queueing import queue_of
from duly.store.attempts.attempt_list import ListedAttempt as ListedAttemptView
from duly.store.tasks.tasks import StoredTask
from duly.store.tasks.views import AttemptView, ProgressView, TaskView

NO_PAYLOAD = Payload()


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of every kind of resource."""

    cpu: float
    memory_mb: int
    disk_mb: int
    iops: int
    bandwidth_mbps: int
    ports: int
    extra: dict[str, int]


class UniqueKey(msgspec.Struct, frozen=True):
    """The unique key that a task holds, or held."""

    key: str
    lasts: UniqueWhile = msgspec.field(name="while")


class TaskProgress(msgspec.Struct, frozen=True):
    """The latest progress report of the running attempt; `fraction` is from 0 to 1."""

    fraction: float
    text: str | None
    at: datetime


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The function that a task calls; secret arguments are "***", and large ones left out."""

    function: str
    args: list[msgspec.Raw] | None
    kwargs: dict[str, msgspec.Raw] | None
    secret: list[str | int]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task: its specification, with all defaults filled in, and its status."""

    id: str
    name: str | None
    status: Status
    tenant: str
    user: str | None
    queue: str
    """The queue in which it waits now; if it is not waiting, in which it would or first did."""
    scheduling_type: str = "once"
    submitted_at: datetime
    ready_at: datetime
    start_by: datetime
    must_start_by: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    max_attempts: int
    retry: RetryTerms | None = None
    on_lost: str
    on_overdue: str | None = None
    """Null in a list that leaves out the payload, because that is large."""
    overdue: bool = False
    """Whether it has waited past its delay tolerance."""
    tier: str | None
    resources: Amounts
    execution_cap: float
    expected_run_time: float | None = None
    """As learned from attempts at tasks of its name; null if nothing is known."""
    delay_tolerance: float
    run_at: datetime | None
    priority: int
    node: str | None = None
    exit_code: int | None = None
    outcome: Outcome | None = None
    reason: Reason | None = None
    quote: dict[str, float] | None = None
    depends_on: list[str | Dependency] = []
    ref: str | None = None
    graph: str | None = None
    schedule: str | None = None
    fire_at: datetime | None = None
    labels: dict[str, str]
    requires: dict[str, str]
    category: str | None = None
    concurrency: Concurrency | None = None
    uses: list[str] = []
    idempotency_key: str | None
    replay_of: str | None
    unique: UniqueKey | None
    admitted_by: str | None
    usage: Usage | None = None
    enforcement: dict[str, str] | None = None
    """How limits are enforced for it on its node, once it has one."""
    progress: TaskProgress | None = None
    command: list[str] | None = None
    script_path: str | None = None
    source: str | None = None
    call: Call | None = None
    stages: list[str] = []
    """What attempts have recorded as done, in order."""
    parent: str | None = None
    """The task whose attempt submitted it."""
    artifact: str | None = None
    env: dict[str, str] | None = None
    stdin: str | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a task that was done once, and the attempt that did it."""

    name: str
    attempt: int
    recorded_at: datetime
    result: msgspec.Raw


class StageResults(msgspec.Struct, frozen=True):
    """The results of the stages that a task has recorded, by name."""

    items: dict[str, msgspec.Raw]


class ArtifactInfo(msgspec.Struct, frozen=True):
    """An uploaded artifact, and when it was last used."""

    sha256: str
    bytes: int
    created_at: datetime
    last_used_at: datetime


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at running a task; the outcome is null while it runs."""

    attempt: int
    node: str | None
    outcome: Outcome | None
    exit_code: int | None
    reason: Reason | None
    leased_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    usage: Usage | None


class ListedAttempt(Attempt, frozen=True, kw_only=True):
    """An attempt in a list across tasks, with the id, name, ref, tenant and user of its task."""

    task: str
    name: str | None
    ref: str | None
    tenant: str
    user: str | None


class DeadLetter(Task, frozen=True, kw_only=True):
    """A dead letter: a failed task with its last attempt and the end of its log."""

    last_attempt: Attempt | None
    log_tail: str


T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, newest first; pass `next_cursor` as `cursor` for the next page."""

    items: list[T]
    next_cursor: str | None = None


class Ids(msgspec.Struct, frozen=True):
    """The ids of submitted tasks, in order."""

    ids: list[str]


class Cancelled(msgspec.Struct, frozen=True):
    """The number of cancelled tasks; if `more` is true, there are others left."""

    cancelled: int
    more: bool = False


class ErrorObject(msgspec.Struct, frozen=True):
    """An error: a code for programs and a message for people."""

    code: str
    message: str
    details: dict[str, Any]


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: ErrorObject


def amounts(resources: Resources) -> Amounts:
    """Return resources as JSON."""
    return Amounts(
        cpu=resources.cpu_milli / 1000,
        memory_mb=resources.memory_mb,
        disk_mb=resources.disk_mb,
        iops=resources.iops,
        bandwidth_mbps=resources.bandwidth_mbps,
        ports=resources.ports,
        extra=resources.extra,
    )


def task(
    view: TaskView, tenant: str, scheduling: SchedulingSettings, reason: Reason | None = None
) -> Task:
    """Return a stored task as JSON; `reason` replaces the stored one."""
    payload = view.payload or NO_PAYLOAD
    return Task(
        id=str(view.id),
        name=view.name,
        status=view.status,
        tenant=tenant,
        user=view.user,
        queue=_queue(view.queue, view.slack, scheduling),
        submitted_at=view.submitted_at,
        ready_at=view.ready_at,
        start_by=view.start_by,
        started_at=view.started_at,
        finished_at=view.finished_at,
        attempt=view.attempt,
        failures=view.failures,
        losses=view.losses,
        max_attempts=view.max_attempts,
        retry=payload.retry,
        on_lost=view.on_lost,
        on_overdue=None if view.payload is None else payload.on_overdue,
        overdue=view.is_overdue,
        tier=view.tier,
        resources=amounts(view.needs),
        execution_cap=view.execution_cap.total_seconds(),
        expected_run_time=None
        if view.expected_run_time is None
        else round(view.expected_run_time, 3),
        delay_tolerance=view.delay_tolerance.total_seconds(),
        run_at=view.run_at,
        priority=view.priority,
        node=view.node,
        exit_code=view.exit_code,
        outcome=view.outcome,
        reason=reason or view.reason,
        depends_on=dependencies(view.depends_on),
        ref=view.ref,
        graph=None if view.graph_id is None else str(view.graph_id),
        labels=view.labels,
        requires=view.requires,
        category=payload.category,
        concurrency=view.concurrency,
        uses=view.uses,
        idempotency_key=view.idempotency_key,
        replay_of=None if view.replay_of is None else str(view.replay_of),
        unique=_unique(view.unique),
        admitted_by=view.admitted_by,
        usage=view.usage,
        enforcement=_enforcement(view.enforcement, payload),
        progress=_progress(view.progress),
        schedule=None if view.schedule_id is None else str(view.schedule_id),
        fire_at=view.fire_at,
        scheduling_type=view.scheduling_type or "once",
        command=payload.command,
        script_path=payload.script_path,
        source=payload.source,
        call=_call(payload),
        stages=view.stages or [],
        parent=None if view.parent_id is None else str(view.parent_id),
        artifact=payload.artifact,
        env=None if view.payload is None else payload.env,
        stdin=payload.stdin,
    )


def new_task(
    spec: TaskSpec,
    stored: StoredTask,
    credential: Credential,
    server: str,
    scheduling: SchedulingSettings,
    expected_run_time: timedelta | None,
) -> Task:
    """Return a task that was just stored as JSON, without reading it back."""
    slack = spec.delay_tolerance if stored.status is Status.WAITING else None
    return Task(
        id=str(stored.id),
        name=spec.name,
        status=stored.status or Status.WAITING,
        tenant=credential.tenant,
        user=credential.user,
        queue=_queue(spec.queue, slack, scheduling),
        submitted_at=stored.submitted_at,
        ready_at=stored.ready_at or stored.submitted_at,
        start_by=stored.start_by or stored.submitted_at,
        max_attempts=spec.max_attempts,
        retry=spec.payload.retry,
        on_lost=spec.on_lost,
        on_overdue=spec.payload.on_overdue,
        tier=spec.tier,
        resources=amounts(spec.resources),
        execution_cap=spec.execution_cap.total_seconds(),
        expected_run_time=None if expected_run_time is None else expected_run_time.total_seconds(),
        delay_tolerance=spec.delay_tolerance.total_seconds(),
        run_at=spec.run_at,
        priority=spec.priority,
        ref=spec.ref,
        labels=spec.labels,
        requires=spec.requires,
        category=spec.payload.category,
        concurrency=spec.concurrency,
        uses=list(spec.payload.uses),
        idempotency_key=spec.idempotency_key,
        replay_of=None,
        unique=_unique(spec.unique),
        admitted_by=server,
        command=spec.payload.command,
        script_path=spec.payload.script_path,
        source=spec.payload.source,
        call=_call(spec.payload),
        artifact=spec.payload.artifact,
        env=spec.payload.env,
        stdin=spec.payload.stdin,
    )


def dependencies(depends_on: Sequence[Dependency]) -> list[str | Dependency]:
    """Return dependencies in their short form: only the id, if the upstream must succeed."""
    return [
        dependency.task if dependency.on is Condition.SUCCESS else dependency
        for dependency in depends_on
    ]


def _queue(stored: str | None, slack: timedelta | None, scheduling: SchedulingSettings) -> str:
    """Return the queue of a task; its `slack` is None unless it is waiting."""
    return queue_of(stored, timedelta.max if slack is None else slack, scheduling.urgent_slack)


def _call(payload: Payload) -> Call | None:
    if payload.call is None:
        return None
    shown = call_as_request(payload.call, redacted=True)
    return Call(
        function=shown.function,
        args=shown.args,
        kwargs=shown.kwargs,
        secret=list(payload.call.secret),
    )


def _unique(unique: Unique | None) -> UniqueKey | None:
    return None if unique is None else UniqueKey(unique.key, unique.holds_while)


def _enforcement(node: dict[str, str] | None, payload: Payload) -> dict[str, str] | None:
    """Return how a task's limits are enforced: as on its node, with the cpu quota of its plan."""
    # A node without a cpu controller cannot enforce a quota, and reports something else.
    if node and node.get("cpu") == "weight" and payload.cpu_quota:
        return {**node, "cpu": "quota"}
    return node


def _progress(view: ProgressView | None) -> TaskProgress | None:
    return None if view is None else TaskProgress(view.fraction, view.text, view.at)


def attempt(view: AttemptView) -> Attempt:
    """Return an attempt as JSON."""
    return Attempt(**msgspec.structs.asdict(view))


def listed_attempt(view: ListedAttemptView) -> ListedAttempt:
    """Return an attempt with its task as JSON."""
    return ListedAttempt(**msgspec.structs.asdict(view) | {"task": str(view.task)})


def dead_letter(view: Task, attempts: list[AttemptView], tail: bytes) -> DeadLetter:
    """Return a dead letter as JSON, with what a person needs to judge it."""
    return DeadLetter(
        **msgspec.structs.asdict(view),
        last_attempt=attempt(attempts[-1]) if attempts else None,
        log_tail=tail.decode("utf-8", "replace"),
    )
