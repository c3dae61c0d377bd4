"""The request for a task, and its completion into a `TaskSpec`.

Decoding (`TaskRequest`) checks types and unknown fields; `complete` checks the meaning: what the
plan allows (`model/requests/allowance.py`), bounds, and text that PostgreSQL or a process could not
take. Every refusal names the field and says what to write instead.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from duly.duration import parse_time
from duly.errors import Invalid
from duly.model.graph import DependencyRequest, check_ref, parse_dependencies
from duly.model.queues.downstream import check_uses
from duly.model.queues.queue import Queue
from duly.model.requests import allowance
from duly.model.requests.amounts import ResourcesRequest, apply_amounts
from duly.model.requests.call_request import (
    call_as_request,
    check_call_resources,
    complete_call,
    keep_hidden,
)
from duly.model.requests.program_request import (
    PROCESS_FIELDS,
    PROGRAM_FIELDS,
    ProgramRequest,
    check_program,
)
from duly.model.requests.retry_request import (
    RetryRequest,
    complete_retry,
    retry_as_request,
)
from duly.model.requests.texts import bounded_text, check_text
from duly.model.resources import ONE_SLOT, Resources
from duly.model.shape import Concurrency
from duly.model.task import OnConflict, OnLost, OnOverdue, Payload, TaskSpec, Unique, UniqueWhile
from duly.model.tenant import Plan
from duly.model.wording import either

MAX_NAME_CHARS = 200
MAX_LABEL_CHARS = 100
MAX_LABELS = 50
MAX_KEY_CHARS = 200
MAX_ATTEMPTS = 1000
MAX_PRIORITY = 1_000_000
MAX_CONCURRENCY = 1_000_000
IMMUTABLE_FIELDS = ("idempotency_key", "ref", "depends_on")
"""Fields that cannot be changed once a task is stored."""


class ConcurrencyRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many of the tenant's attempts with the same key may run at once."""

    key: str
    limit: int


class UniqueRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A key that at most one task of the tenant holds at a time."""

    key: str
    holds_while: str | None = msgspec.field(default=None, name="while")
    on_conflict: str | None = None


class TaskRequest(ProgramRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks. A missing or null field gets the plan's default."""

    name: str | None = None
    tier: str | None = None
    resources: ResourcesRequest | None = None
    delay_tolerance: float | str | None = None
    execution_cap: float | str | None = None
    max_attempts: int | None = None
    retry: RetryRequest | None = None
    on_lost: str | None = None
    on_overdue: str | None = None
    """Whether a task that has waited past its delay tolerance goes on waiting or is cancelled."""
    run_at: str | None = None
    idempotency_key: str | None = None
    labels: dict[str, str] | None = None
    requires: dict[str, str] | None = None
    category: str | None = None
    """The kind of work; selects a default for delay_tolerance."""
    priority: int | None = None
    queue: str | None = None
    """`urgent`, `off_peak` or an administrator's; other queues follow from the task itself."""
    concurrency: ConcurrencyRequest | None = None
    unique: UniqueRequest | None = None
    ref: str | None = None
    """The task's name in the depends_on of other tasks of the same request."""
    depends_on: list[str | DependencyRequest] | None = None
    uses: list[str] | None = None
    """The keys of the downstreams that it calls, whose limits apply to it."""


def complete(
    request: TaskRequest,
    plan: Plan,
    *,
    replay_of: int | None = None,
    terms: Mapping[str, Any] | None = None,
) -> TaskSpec:
    """Check `request` and fill in the defaults; raises Invalid for the first bad field.

    `terms` is the result of `shared_terms`, if it is already known.
    """
    if terms is None:
        terms = shared_terms(request, plan)
    return TaskSpec(
        name=_name(request),
        payload=_payload(request, plan),
        run_at=None if request.run_at is None else parse_time(request.run_at, "run_at"),
        idempotency_key=bounded_text(request.idempotency_key, "idempotency_key", MAX_KEY_CHARS),
        labels=check_labels(request.labels) if request.labels else {},
        replay_of=replay_of,
        unique=None if request.unique is None else _unique(request.unique),
        ref=check_ref(request.ref),
        depends_on=parse_dependencies(request.depends_on) if request.depends_on else [],
        **terms,
    )


def shared_terms(request: TaskRequest, plan: Plan) -> Mapping[str, Any]:
    """Return the fields that many tasks have in common: how, where and when they run."""
    tier = allowance.tier(request.tier, plan)
    queue = None if request.queue is None else allowance.queue(request.queue, plan)
    return {
        "tier": tier,
        "queue": queue,
        "resources": _resources(request, tier, plan),
        "delay_tolerance": allowance.delay_tolerance(
            request.delay_tolerance, request.category, plan, queue
        ),
        "execution_cap": allowance.execution_cap(request.execution_cap, plan),
        "max_attempts": _integer(request.max_attempts, "max_attempts", 1, MAX_ATTEMPTS, default=3),
        "on_lost": _on_lost(request.on_lost),
        "requires": check_labels(request.requires, "requires") if request.requires else {},
        "priority": _integer(request.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY, default=0),
        "concurrency": _concurrency(request.concurrency),
    }


TERM_FIELDS = attrgetter(
    *("tier", "resources", "delay_tolerance", "category", "execution_cap", "max_attempts"),
    *("on_lost", "requires", "priority", "queue", "concurrency"),
)
"""All fields of a request that `shared_terms` reads; besides, it asks if there is a call."""


class Completer:
    """Completes the requests of one batch, and reuses the previous one's terms if equal."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._asked: tuple[Any, ...] = ()
        self._terms: Mapping[str, Any] = {}

    def complete(self, request: TaskRequest) -> TaskSpec:
        """Check and complete one request, like the function `complete`."""
        asked = (request.call is None, *TERM_FIELDS(request))
        if asked != self._asked:
            self._terms = shared_terms(request, self._plan)
            self._asked = asked
        return complete(request, self._plan, terms=self._terms)


def revise(spec: TaskSpec, changes: Mapping[str, Any], plan: Plan) -> TaskSpec:
    """Return `spec` with the fields of a request changed, checked like a new task.

    `retry` changes part by part. Resources change kind by kind, unless a tier is named: then they
    are the tier's. Likewise, a category brings its tolerance, and `off_peak` its own. Unchanged
    fields stay, even if the plan has shrunk.
    """
    for field in IMMUTABLE_FIELDS:
        if field in changes:
            raise Invalid(field, "it cannot be changed. Submit a new task.")
    fields_before = _as_request(spec, plan)
    fields = {**fields_before, **changes}
    old_call, new_call = fields_before["call"], changes.get("call")
    if old_call is not None and new_call is not None:
        keep_hidden(new_call, old_call)
    ways = set(PROGRAM_FIELDS) & changes.keys()
    if ways:
        fields.update({way: changes.get(way) for way in PROGRAM_FIELDS})
        if "command" not in ways:
            fields["artifact"] = changes.get("artifact")
    call = spec.payload.call
    if call is not None and fields["name"] == call.function and "name" not in changes:
        # It was not given.
        fields["name"] = None
    if (fields["call"] is None) is not (call is None):
        fields.update({name: changes.get(name) for name in (*PROCESS_FIELDS, "resources")})
    elif "tier" in changes:
        fields["resources"] = changes.get("resources")
    elif changes.get("resources"):
        kept = fields_before["resources"]
        for name in ("memory", "disk"):
            if name in changes["resources"]:
                kept.pop(f"{name}_mb")
        fields["resources"] = {**kept, **changes["resources"]}
    if changes.get("retry"):
        fields["retry"] = {**(fields_before["retry"] or {}), **changes["retry"]}
    if "category" in changes or _leaves_peak(spec, changes, plan):
        fields["delay_tolerance"] = changes.get("delay_tolerance")
    request = msgspec.convert(fields, TaskRequest)
    granted = allowance.keep_granted(plan, spec, changes.keys())
    new = complete(request, granted, replay_of=spec.replay_of)
    revised = msgspec.structs.replace(
        new,
        idempotency_key=spec.idempotency_key,
        # An occurrence of a schedule remains one, whatever else is changed.
        queue=new.queue or (Queue.PERIODIC if spec.queue == Queue.PERIODIC else None),
        user_id=spec.user_id,
        tenant_id=spec.tenant_id,
    )
    return _with_upstreams_of(spec, revised)


def _leaves_peak(spec: TaskSpec, changes: Mapping[str, Any], plan: Plan) -> bool:
    """Return True if a change of queue changes the tolerance: off-peak queues have their own."""
    asked = changes.get("queue", spec.queue)
    return allowance.is_off_peak(asked, plan) != allowance.is_off_peak(spec.queue, plan)


def replayed(spec: TaskSpec, plan: Plan, *, replay_of: int) -> TaskSpec:
    """Return a replay of `spec`, to run now; raises Invalid if the plan has shrunk too far."""
    request = msgspec.convert({**_as_request(spec, plan), "run_at": None}, TaskRequest)
    fresh = complete(request, allowance.keep_names(plan, spec), replay_of=replay_of)
    return msgspec.structs.replace(_with_upstreams_of(spec, fresh), ref=spec.ref)


def _with_upstreams_of(old: TaskSpec, spec: TaskSpec) -> TaskSpec:
    """Return `spec` marked as having upstreams, like `old`: a request made from it names none."""
    if not old.payload.has_upstreams:
        return spec
    payload = msgspec.structs.replace(spec.payload, has_upstreams=True)
    return msgspec.structs.replace(spec, payload=payload)


def _as_request(spec: TaskSpec, plan: Plan) -> dict[str, Any]:
    requestable = allowance.requestable_queues(plan)
    call = spec.payload.call
    return {
        "name": spec.name,
        "command": spec.payload.command,
        "script_path": spec.payload.script_path,
        "source": spec.payload.source,
        "call": None if call is None else call_as_request(call),
        "artifact": spec.payload.artifact,
        "env": spec.payload.env or None,
        "stdin": spec.payload.stdin,
        "tier": spec.tier,
        "resources": _resources_as_request(spec.resources)
        if call is None
        else {"memory_mb": call.memory_mb},
        "delay_tolerance": spec.delay_tolerance.total_seconds(),
        "execution_cap": spec.execution_cap.total_seconds(),
        "max_attempts": spec.max_attempts,
        "retry": retry_as_request(spec.payload.retry),
        "on_lost": spec.on_lost.value,
        "on_overdue": spec.payload.on_overdue.value,
        "run_at": None if spec.run_at is None else spec.run_at.isoformat(),
        "labels": spec.labels,
        "requires": spec.requires,
        "category": spec.payload.category,
        "priority": spec.priority,
        # A queue that was removed since is left out, as are those that cannot be requested.
        "queue": spec.queue if spec.queue in requestable else None,
        "concurrency": msgspec.to_builtins(spec.concurrency),
        "unique": None if spec.unique is None else msgspec.to_builtins(spec.unique),
        "uses": list(spec.payload.uses) or None,
    }


def _resources_as_request(resources: Resources) -> dict[str, Any]:
    fields = msgspec.structs.asdict(resources)
    return {"cpu": fields.pop("cpu_milli") / 1000, **fields}


def _integer(value: int | None, field: str, low: int, high: int, *, default: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        raise Invalid(field, f"{value} is not a whole number from {low} to {high}.")
    return value


def _on_lost(value: str | None) -> OnLost:
    if value is None:
        return OnLost.RETRY
    try:
        return OnLost(value)
    except ValueError:
        raise Invalid("on_lost", f"{value[:40]!r} is unknown. Use {either(OnLost)}.") from None


def _on_overdue(value: str | None) -> OnOverdue:
    if value is None:
        return OnOverdue.WAIT
    try:
        return OnOverdue(value)
    except ValueError:
        message = f"{value[:40]!r} is unknown. Use {either(OnOverdue)}."
        raise Invalid("on_overdue", message) from None


def _concurrency(asked: ConcurrencyRequest | None) -> Concurrency | None:
    if asked is None:
        return None
    key = bounded_text(asked.key, "concurrency.key", MAX_KEY_CHARS) or ""
    limit = _integer(asked.limit, "concurrency.limit", 1, MAX_CONCURRENCY, default=1)
    return Concurrency(key, limit)


def _unique(asked: UniqueRequest) -> Unique:
    key = bounded_text(asked.key, "unique.key", MAX_KEY_CHARS)
    try:
        return Unique(
            key or "",
            UniqueWhile(asked.holds_while or UniqueWhile.LIVE),
            OnConflict(asked.on_conflict or OnConflict.REFUSE),
        )
    except ValueError:
        field, value, words = "unique.while", asked.holds_while, either(UniqueWhile)
        if asked.holds_while in (None, *UniqueWhile):
            field, value, words = "unique.on_conflict", asked.on_conflict, either(OnConflict)
        raise Invalid(field, f"{str(value)[:40]!r} is unknown. Use {words}.") from None


def _name(request: TaskRequest) -> str | None:
    """Return the name; that of a call is by default its function's."""
    if request.name is None and request.call is not None:
        return request.call.function
    return bounded_text(request.name, "name", MAX_NAME_CHARS)


def _payload(request: TaskRequest, plan: Plan) -> Payload:
    check_program(request)
    return Payload(
        command=request.command,
        script_path=request.script_path,
        source=request.source,
        call=None
        if request.call is None
        else complete_call(request.call, _memory_mb(request, plan)),
        artifact=request.artifact,
        env=request.env or {},
        category=request.category,
        log_limit=plan.max_log_bytes,
        result_limit=plan.max_result_bytes,
        cpu_quota=plan.cpu_quota,
        has_upstreams=bool(request.depends_on),
        stdin=request.stdin,
        retry=complete_retry(request.retry),
        on_overdue=_on_overdue(request.on_overdue),
        uses=check_uses(request.uses) if request.uses else (),
    )


def _memory_mb(request: TaskRequest, plan: Plan) -> int:
    """Return the memory within which a call asks to run."""
    tier = plan.known_tiers[allowance.tier(request.tier, plan)]
    return apply_amounts(request.resources, tier).memory_mb


def check_labels(labels: dict[str, str], field: str = "labels") -> dict[str, str]:
    """Return `labels`; raises Invalid if they are too many, or one is empty or too long."""
    if len(labels) > MAX_LABELS:
        raise Invalid(field, f"it has {len(labels)} entries; at most {MAX_LABELS} are allowed.")
    for name, value in labels.items():
        if not name.strip() or len(name) > MAX_LABEL_CHARS or len(value) > MAX_LABEL_CHARS:
            raise Invalid(
                field,
                f"the label {name[:60]!r} is empty or too long. Use names of 1 to "
                f"{MAX_LABEL_CHARS} characters, and values of at most {MAX_LABEL_CHARS}.",
            )
        check_text(name, field)
        check_text(value, f"{field}.{name}")
    return labels


def _resources(request: TaskRequest, tier: str, plan: Plan) -> Resources:
    """Return the needs of a task: those of a call are a slot of its worker."""
    if request.call is not None:
        check_call_resources(request.resources)
        return ONE_SLOT
    resources = apply_amounts(request.resources, plan.known_tiers[tier])
    # To the kernel, 0 is no limit: the task could take all the memory.
    if resources.memory_mb == 0:
        raise Invalid("resources.memory", "0 is too little. Use at least 1 MiB.")
    if plan.max_resources:
        allowance.check_resources(resources, plan)
    return resources
