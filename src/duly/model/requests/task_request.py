"""The request for a task, and its completion into a `TaskSpec`.

Decoding (`TaskRequest`) checks types and unknown fields; `complete` checks the meaning: what the
plan allows (`model/requests/allowance.py`), bounds, and text that PostgreSQL or a process could not
take. Every refusal names the field and says what to write instead.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from duly.duration import parse_time
from duly.errors import Invalid, TooLarge
from duly.model.artifact import check_sha256
from duly.model.downstream import check_uses
from duly.model.graph import DependencyRequest, check_ref, parse_dependencies
from duly.model.queue import Queue
from duly.model.requests import allowance
from duly.model.requests.amounts import ResourcesRequest, apply_amounts
from duly.model.requests.retry_request import (
    RetryRequest,
    complete_retry,
    retry_as_request,
)
from duly.model.resources import Resources
from duly.model.shape import Concurrency
from duly.model.task import OnConflict, OnLost, OnOverdue, Payload, TaskSpec, Unique, UniqueWhile
from duly.model.tenant import Plan
from duly.model.wording import either

MAX_NAME_CHARS = 200
MAX_LABEL_CHARS = 100
MAX_LABELS = 50
MAX_KEY_CHARS = 200
MAX_ENV_VARIABLES = 1000
MAX_ENV_BYTES = 256 * 1024
MAX_VARIABLE_BYTES = 128 * 1024 - 2
"""Linux takes no single variable of more than 128 KiB, its `=` and closing NUL included."""
MAX_PATH_FOLDERS = 256
"""Different folders in a task's PATH: its node searches them for the program one by one."""
MAX_ARGUMENTS = 10_000
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Linux takes no single argument of more than 128 KiB, its closing NUL included."""
MAX_COMMAND_BYTES = 1024 * 1024
MAX_SOURCE_BYTES = 1024 * 1024
MAX_STDIN_BYTES = 1024 * 1024
MAX_ATTEMPTS = 1000
MAX_PRIORITY = 1_000_000
MAX_CONCURRENCY = 1_000_000
IMMUTABLE_FIELDS = ("idempotency_key", "ref", "depends_on")
"""Fields that cannot be changed once a task is stored."""
PAYLOAD_FIELDS = ("command", "script_path", "source")
ENV_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConcurrencyRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many of the tenant's attempts with the same key may run at once."""

    key: str
    limit: int


class UniqueRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A key that at most one task of the tenant holds at a time."""

    key: str
    holds_while: str | None = msgspec.field(default=None, name="while")
    on_conflict: str | None = None


class TaskRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks. A missing or null field gets the plan's default."""

    name: str | None = None
    command: list[str] | None = None
    script_path: str | None = None
    source: str | None = None
    artifact: str | None = None
    """The SHA-256, in hex, of a bundle that was uploaded before; requires a command."""
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
    env: dict[str, str] | None = None
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
    stdin: str | None = None
    """Text that every attempt reads from its standard input."""
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
        name=_text(request.name, "name", MAX_NAME_CHARS),
        payload=_payload(request, plan),
        run_at=None if request.run_at is None else parse_time(request.run_at, "run_at"),
        idempotency_key=_text(request.idempotency_key, "idempotency_key", MAX_KEY_CHARS),
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
"""All fields of a request that `shared_terms` reads."""


class Completer:
    """Completes the requests of one batch, and reuses the previous one's terms if equal."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._asked: tuple[Any, ...] = ()
        self._terms: Mapping[str, Any] = {}

    def complete(self, request: TaskRequest) -> TaskSpec:
        """Check and complete one request, like the function `complete`."""
        asked = TERM_FIELDS(request)
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
    ways = {"command", "script_path", "source"} & changes.keys()
    if ways:
        fields.update({way: changes.get(way) for way in ("command", "script_path", "source")})
        if "command" not in ways:
            fields["artifact"] = changes.get("artifact")
    if "tier" in changes:
        fields["resources"] = changes.get("resources")
    elif changes.get("resources"):
        kept = _resources_as_request(spec.resources)
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
    return {
        "name": spec.name,
        "command": spec.payload.command,
        "script_path": spec.payload.script_path,
        "source": spec.payload.source,
        "artifact": spec.payload.artifact,
        "env": spec.payload.env,
        "stdin": spec.payload.stdin,
        "tier": spec.tier,
        "resources": _resources_as_request(spec.resources),
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


def check_text(text: str, field: str) -> str:
    """Return `text`; raises Invalid if neither PostgreSQL nor a process could take it."""
    if "\0" in text:
        raise Invalid(field, "it contains a NUL character. Remove it.")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(field, "it contains half of a surrogate pair. Send valid UTF-8.") from None
    return text


def _text(value: str | None, field: str, limit: int) -> str | None:
    if value is None:
        return None
    if not value.strip():
        raise Invalid(field, "it is empty. Give a value, or leave it out.")
    if len(value) > limit:
        raise Invalid(field, f"it has {len(value)} characters; at most {limit} are allowed.")
    return check_text(value, field)


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
    key = _text(asked.key, "concurrency.key", MAX_KEY_CHARS) or ""
    limit = _integer(asked.limit, "concurrency.limit", 1, MAX_CONCURRENCY, default=1)
    return Concurrency(key, limit)


def _unique(asked: UniqueRequest) -> Unique:
    key = _text(asked.key, "unique.key", MAX_KEY_CHARS)
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


def _payload(request: TaskRequest, plan: Plan) -> Payload:
    ways = (request.command, request.script_path, request.source)
    if ways.count(None) != len(ways) - 1:
        given = [name for name, way in zip(PAYLOAD_FIELDS, ways, strict=True) if way is not None]
        problem = f"{either(given, 'and')} are given" if given else "there is nothing to run"
        raise Invalid(
            given[-1] if given else "command",
            f"{problem}. Give exactly one of {either(PAYLOAD_FIELDS, 'and')}.",
        )
    if request.command is not None:
        _check_command(request.command)
    if request.script_path is not None:
        _text(request.script_path, "script_path", 4096)
        if not request.script_path.startswith("/"):
            raise Invalid(
                "script_path",
                f"{request.script_path[:60]!r} is not an absolute path on the node. Begin with /.",
            )
    if request.source is not None:
        _check_source(request.source)
    if request.artifact is not None:
        _check_artifact(request)
    return Payload(
        command=request.command,
        script_path=request.script_path,
        source=request.source,
        artifact=request.artifact,
        env=_env(request.env) if request.env else {},
        category=request.category,
        log_limit=plan.max_log_bytes,
        result_limit=plan.max_result_bytes,
        cpu_quota=plan.cpu_quota,
        has_upstreams=bool(request.depends_on),
        stdin=None if request.stdin is None else _check_stdin(request.stdin),
        retry=complete_retry(request.retry),
        on_overdue=_on_overdue(request.on_overdue),
        uses=check_uses(request.uses) if request.uses else (),
    )


def _check_command(command: list[str]) -> None:
    if not command:
        raise Invalid("command", 'it is empty. Write it like ["echo", "hi"].')
    if not command[0].strip():
        raise Invalid("command[0]", "it is empty. Name the program to run.")
    if len(command) > MAX_ARGUMENTS:
        raise Invalid(
            "command", f"it has {len(command)} arguments; at most {MAX_ARGUMENTS} are allowed."
        )
    total = 0
    for index, argument in enumerate(command):
        size = len(argument)
        if not argument.isascii() or "\0" in argument:
            size = len(check_text(argument, f"command[{index}]").encode())
        total += size
        if size > MAX_ARGUMENT_BYTES:
            raise Invalid(
                f"command[{index}]",
                f"it has {size} bytes; at most {MAX_ARGUMENT_BYTES} are allowed in one argument.",
            )
    if total > MAX_COMMAND_BYTES:
        raise Invalid("command", f"it has {total} bytes; at most {MAX_COMMAND_BYTES} are allowed.")


def _check_source(source: str) -> None:
    check_text(source, "source")
    if not source.startswith("#!"):
        raise Invalid("source", "it has no first line such as #!/bin/sh. Add one.")
    size = len(source.encode())
    if size > MAX_SOURCE_BYTES:
        message = f"source: it has {size} bytes; at most {MAX_SOURCE_BYTES} are allowed."
        raise TooLarge(message, field="source")


def _check_stdin(text: str) -> str:
    check_text(text, "stdin")
    size = len(text.encode())
    if size > MAX_STDIN_BYTES:
        raise Invalid(
            "stdin",
            f"it has {size} bytes; at most {MAX_STDIN_BYTES} are allowed. Send it as a file of a "
            "bundle.",
        )
    return text


def _check_artifact(request: TaskRequest) -> None:
    """Refuse an invalid hash; whether the artifact exists is checked where it is stored."""
    if request.command is None:
        raise Invalid(
            "artifact", "it needs a command, which runs in its folder. Give command, too."
        )
    check_sha256(request.artifact or "", "artifact")


def _env(env: dict[str, str]) -> dict[str, str]:
    if len(env) > MAX_ENV_VARIABLES:
        raise Invalid(
            "env", f"it has {len(env)} variables; at most {MAX_ENV_VARIABLES} are allowed."
        )
    total = 0
    for name, value in env.items():
        if not ENV_NAME_PATTERN.fullmatch(name) or len(name) > 200:
            raise Invalid(
                "env",
                f"{name[:60]!r} is not the name of a variable. Use letters, digits and '_', and "
                "begin with no digit.",
            )
        if name.startswith("DULY_"):
            raise Invalid(
                "env", f"{name[:60]!r} is reserved, as all names that begin with DULY_. Rename it."
            )
        size = len(name) + len(check_text(value, f"env.{name}").encode())
        if size > MAX_VARIABLE_BYTES:
            message = (
                f"it has {size} bytes with its name; at most {MAX_VARIABLE_BYTES} are allowed."
            )
            raise Invalid(f"env.{name}", message)
        total += size
    if total > MAX_ENV_BYTES:
        raise Invalid("env", f"it has {total} bytes; at most {MAX_ENV_BYTES} are allowed.")
    folders = len(set(env.get("PATH", "").split(":")))
    if folders > MAX_PATH_FOLDERS:
        message = f"it names {folders} different folders; at most {MAX_PATH_FOLDERS} are allowed."
        raise Invalid("env.PATH", message)
    return env


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
    resources = apply_amounts(request.resources, plan.known_tiers[tier])
    # To the kernel, 0 is no limit: the task could take all the memory.
    if resources.memory_mb == 0:
        raise Invalid("resources.memory", "0 is too little. Use at least 1 MiB.")
    if plan.max_resources:
        allowance.check_resources(resources, plan)
    return resources
