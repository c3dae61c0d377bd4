"""What a client may ask for, and how it becomes a complete `TaskSpec`.

Decoding (`TaskRequest`) settles types and unknown fields; `complete` settles
meaning: what the plan says (`model/allowance.py`), bounds, and text that PostgreSQL
or a process could not take. Every refusal names the field and says what to write
instead.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from duly.duration import parse_time
from duly.errors import Invalid, TooLarge
from duly.model import allowance
from duly.model.amounts import ResourcesRequest, amounts_of
from duly.model.artifact import check_sha256
from duly.model.graph import DependencyRequest, check_ref, dependencies
from duly.model.queue import ASKABLE, Queue
from duly.model.resources import Resources
from duly.model.shape import Concurrency
from duly.model.task import Lasts, OnConflict, OnLost, Payload, TaskSpec, Unique
from duly.model.tenant import Plan

MAX_NAME = 200
MAX_LABEL = 100
MAX_LABELS = 50
MAX_KEY = 200
MAX_ENV = 1000
MAX_ENV_BYTES = 256 * 1024
MAX_VARIABLE_BYTES = 128 * 1024 - 2
"""Linux takes no single variable of more than 128 KiB, its `=` and closing NUL included."""
MAX_PATH_FOLDERS = 256
"""Different folders in a task's PATH: its node looks for the program in one after the other."""
MAX_ARGUMENTS = 10_000
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Linux takes no single argument of more than 128 KiB, its closing NUL included."""
MAX_COMMAND_BYTES = 1024 * 1024
MAX_SOURCE_BYTES = 1024 * 1024
MAX_ATTEMPTS = 1000
MAX_PRIORITY = 1_000_000
MAX_CONCURRENCY = 1_000_000
FIXED = ("idempotency_key", "ref", "depends_on")
"""What a task keeps once it is stored."""
WAYS = ("command", "script_path", "source")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConcurrencyRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many attempts of the tenant may run at once under a key."""

    key: str
    limit: int


class UniqueRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is to be there once among the tenant's live tasks."""

    key: str
    lasts: str | None = msgspec.field(default=None, name="while")
    on_conflict: str | None = None


class TaskRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks. What is left out or null gets the plan's default."""

    name: str | None = None
    command: list[str] | None = None
    script_path: str | None = None
    source: str | None = None
    artifact: str | None = None
    """The SHA-256, in hex, of a bundle that was uploaded before; goes with a command."""
    tier: str | None = None
    resources: ResourcesRequest | None = None
    delay_tolerance: float | str | None = None
    execution_cap: float | str | None = None
    max_attempts: int | None = None
    on_lost: str | None = None
    run_at: str | None = None
    idempotency_key: str | None = None
    env: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    requires: dict[str, str] | None = None
    category: str | None = None
    """What kind of work it is; picks a default for delay_tolerance."""
    priority: int | None = None
    queue: str | None = None
    """`urgent` or `off_peak`; the others follow from what the task is."""
    concurrency: ConcurrencyRequest | None = None
    unique: UniqueRequest | None = None
    ref: str | None = None
    """What other tasks of the same request call it in their depends_on."""
    depends_on: list[str | DependencyRequest] | None = None


def complete(
    request: TaskRequest,
    plan: Plan,
    *,
    replay_of: int | None = None,
    terms: Mapping[str, Any] | None = None,
) -> TaskSpec:
    """Check `request` and fill in what it leaves open; raises Invalid for the first bad field.

    `terms` are what `terms_of` says of it, where that is known already.
    """
    if terms is None:
        terms = terms_of(request, plan)
    return TaskSpec(
        name=_text(request.name, "name", MAX_NAME),
        payload=_payload(request, plan),
        run_at=None if request.run_at is None else parse_time(request.run_at, "run_at"),
        idempotency_key=_text(request.idempotency_key, "idempotency_key", MAX_KEY),
        labels=check_labels(request.labels) if request.labels else {},
        replay_of=replay_of,
        unique=None if request.unique is None else _unique(request.unique),
        ref=check_ref(request.ref),
        depends_on=dependencies(request.depends_on) if request.depends_on else [],
        **terms,
    )


def terms_of(request: TaskRequest, plan: Plan) -> Mapping[str, Any]:
    """Return what many tasks have in common: how, where and when they are to be run."""
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


TERMS = attrgetter(
    *("tier", "resources", "delay_tolerance", "category", "execution_cap", "max_attempts"),
    *("on_lost", "requires", "priority", "queue", "concurrency"),
)
"""All of a request that `terms_of` looks at."""


class Completer:
    """Completes the requests of one batch: terms like those of the one before are known."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._asked: tuple[Any, ...] = ()
        self._terms: Mapping[str, Any] = {}

    def complete(self, request: TaskRequest) -> TaskSpec:
        """Do what the function of the same name does."""
        asked = TERMS(request)
        if asked != self._asked:
            self._terms = terms_of(request, self._plan)
            self._asked = asked
        return complete(request, self._plan, terms=self._terms)


def revise(spec: TaskSpec, changes: Mapping[str, Any], plan: Plan) -> TaskSpec:
    """Return `spec` with the fields of a request changed, checked like a new one.

    Resources change kind by kind, unless a tier is named: then they are the tier's. So does a
    category bring its tolerance, and `off_peak` its own. What is not changed stays, though the
    plan may have shrunk.
    """
    for field in FIXED:
        if field in changes:
            raise Invalid(field, f"{field} cannot be changed; submit a new task.")
    fields = {**_as_request(spec), **changes}
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
    if "category" in changes or _leaves_peak(spec, changes):
        fields["delay_tolerance"] = changes.get("delay_tolerance")
    request = msgspec.convert(fields, TaskRequest)
    granted = allowance.keep_granted(plan, spec, changes.keys())
    new = complete(request, granted, replay_of=spec.replay_of)
    revised = msgspec.structs.replace(
        new,
        idempotency_key=spec.idempotency_key,
        # What a schedule has produced stays that, whatever else is changed.
        queue=new.queue or (Queue.PERIODIC if spec.queue is Queue.PERIODIC else None),
    )
    return _with_inputs_of(spec, revised)


def _leaves_peak(spec: TaskSpec, changes: Mapping[str, Any]) -> bool:
    """Say whether a change of the queue brings another tolerance: `off_peak` has its own."""
    asked = changes.get("queue", spec.queue)
    return asked != spec.queue and Queue.OFF_PEAK in (asked, spec.queue)


def repeat(spec: TaskSpec, plan: Plan, *, replay_of: int) -> TaskSpec:
    """Return what a replay of `spec` asks for, now; raises Invalid when the plan has shrunk."""
    request = msgspec.convert({**_as_request(spec), "run_at": None}, TaskRequest)
    fresh = complete(request, allowance.keep_names(plan, spec), replay_of=replay_of)
    return msgspec.structs.replace(_with_inputs_of(spec, fresh), ref=spec.ref)


def _with_inputs_of(old: TaskSpec, spec: TaskSpec) -> TaskSpec:
    """Return `spec`, which has the upstreams of `old`: a request made of that one names none."""
    if not old.payload.has_upstreams:
        return spec
    payload = msgspec.structs.replace(spec.payload, has_upstreams=True)
    return msgspec.structs.replace(spec, payload=payload)


def _as_request(spec: TaskSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "command": spec.payload.command,
        "script_path": spec.payload.script_path,
        "source": spec.payload.source,
        "artifact": spec.payload.artifact,
        "env": spec.payload.env,
        "tier": spec.tier,
        "resources": _resources_as_request(spec.resources),
        "delay_tolerance": spec.delay_tolerance.total_seconds(),
        "execution_cap": spec.execution_cap.total_seconds(),
        "max_attempts": spec.max_attempts,
        "on_lost": spec.on_lost.value,
        "run_at": None if spec.run_at is None else spec.run_at.isoformat(),
        "labels": spec.labels,
        "requires": spec.requires,
        "category": spec.payload.category,
        "priority": spec.priority,
        "queue": spec.queue if spec.queue in ASKABLE else None,
        "concurrency": msgspec.to_builtins(spec.concurrency),
        "unique": None if spec.unique is None else msgspec.to_builtins(spec.unique),
    }


def _resources_as_request(resources: Resources) -> dict[str, Any]:
    fields = msgspec.structs.asdict(resources)
    return {"cpu": fields.pop("cpu_milli") / 1000, **fields}


def check_text(text: str, field: str) -> str:
    """Return `text`, unless it holds what neither PostgreSQL nor a process can take."""
    if "\0" in text:
        raise Invalid(field, f"{field} contains a NUL character; take it out.")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(field, f"{field} contains half of a surrogate pair; send UTF-8.") from None
    return text


def _text(value: str | None, field: str, limit: int) -> str | None:
    if value is None:
        return None
    if not value.strip():
        raise Invalid(field, f"{field} must not be empty; leave it out instead.")
    if len(value) > limit:
        raise Invalid(field, f"{field} may have at most {limit} characters, not {len(value)}.")
    return check_text(value, field)


def _integer(value: int | None, field: str, low: int, high: int, *, default: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        raise Invalid(field, f"{field} must be between {low} and {high}, not {value}.")
    return value


def _on_lost(value: str | None) -> OnLost:
    if value is None:
        return OnLost.RETRY
    try:
        return OnLost(value)
    except ValueError:
        raise Invalid("on_lost", f'on_lost is "retry" or "fail", not {value[:40]!r}.') from None


def _concurrency(asked: ConcurrencyRequest | None) -> Concurrency | None:
    if asked is None:
        return None
    key = _text(asked.key, "concurrency.key", MAX_KEY) or ""
    limit = _integer(asked.limit, "concurrency.limit", 1, MAX_CONCURRENCY, default=1)
    return Concurrency(key, limit)


def _unique(asked: UniqueRequest) -> Unique:
    key = _text(asked.key, "unique.key", MAX_KEY)
    try:
        return Unique(
            key or "",
            Lasts(asked.lasts or Lasts.LIVE),
            OnConflict(asked.on_conflict or OnConflict.REFUSE),
        )
    except ValueError:
        field, words = "unique.while", '"waiting" or "live"'
        if asked.lasts in (None, *Lasts):
            field, words = "unique.on_conflict", '"refuse" or "return"'
        raise Invalid(field, f"{field} is {words}.") from None


def _payload(request: TaskRequest, plan: Plan) -> Payload:
    ways = (request.command, request.script_path, request.source)
    if ways.count(None) != len(ways) - 1:
        given = [name for name, way in zip(WAYS, ways, strict=True) if way is not None]
        problem = "says nothing to run" if not given else f"says {' and '.join(given)}"
        raise Invalid(
            given[-1] if given else "command",
            f"The task {problem}; give exactly one of command, script_path and source.",
        )
    if request.command is not None:
        _check_command(request.command)
    if request.script_path is not None:
        _text(request.script_path, "script_path", 4096)
        if not request.script_path.startswith("/"):
            raise Invalid("script_path", "script_path must be an absolute path on the node.")
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
    )


def _check_command(command: list[str]) -> None:
    if not command:
        raise Invalid("command", 'command is empty; write it like ["echo", "hi"].')
    if not command[0].strip():
        raise Invalid("command[0]", "command[0], the program to run, is empty.")
    if len(command) > MAX_ARGUMENTS:
        raise Invalid("command", f"command may have at most {MAX_ARGUMENTS} arguments.")
    total = 0
    for index, argument in enumerate(command):
        size = len(argument)
        if not argument.isascii() or "\0" in argument:
            size = len(check_text(argument, f"command[{index}]").encode())
        total += size
        if size > MAX_ARGUMENT_BYTES:
            raise Invalid(
                f"command[{index}]",
                f"command[{index}] has {size} bytes; a process takes at most {MAX_ARGUMENT_BYTES} "
                "in one argument.",
            )
    if total > MAX_COMMAND_BYTES:
        raise Invalid("command", f"command may have at most {MAX_COMMAND_BYTES} bytes in all.")


def _check_source(source: str) -> None:
    check_text(source, "source")
    if not source.startswith("#!"):
        raise Invalid("source", 'source must begin with a line such as "#!/bin/sh".')
    if len(source.encode()) > MAX_SOURCE_BYTES:
        raise TooLarge(f"source may have at most {MAX_SOURCE_BYTES} bytes.", field="source")


def _check_artifact(request: TaskRequest) -> None:
    """Refuse what is no hash; whether there is such an artifact is known where it is stored."""
    if request.command is None:
        raise Invalid("artifact", "An artifact goes with a command, which is run in it.")
    check_sha256(request.artifact or "", "artifact")


def _env(env: dict[str, str]) -> dict[str, str]:
    if len(env) > MAX_ENV:
        raise Invalid("env", f"env may have at most {MAX_ENV} variables.")
    total = 0
    for name, value in env.items():
        if not ENV_NAME.fullmatch(name) or len(name) > 200:
            raise Invalid("env", f"env has a name that no shell takes: {name[:60]!r}.")
        if name.startswith("DULY_"):
            raise Invalid("env", f"env may not set {name[:60]}: names in DULY_ are Duly's own.")
        size = len(name) + len(check_text(value, f"env.{name}").encode())
        if size > MAX_VARIABLE_BYTES:
            message = f"env.{name} may have at most {MAX_VARIABLE_BYTES} bytes, its name included."
            raise Invalid(f"env.{name}", message)
        total += size
    if total > MAX_ENV_BYTES:
        raise Invalid("env", f"env may have at most {MAX_ENV_BYTES} bytes in all.")
    folders = len(set(env.get("PATH", "").split(":")))
    if folders > MAX_PATH_FOLDERS:
        message = f"env.PATH may name at most {MAX_PATH_FOLDERS} different folders, not {folders}."
        raise Invalid("env.PATH", message)
    return env


def check_labels(labels: dict[str, str], field: str = "labels") -> dict[str, str]:
    """Return `labels`, unless there are too many of them, or one is empty or too long."""
    if len(labels) > MAX_LABELS:
        raise Invalid(field, f"{field} may have at most {MAX_LABELS} entries.")
    for name, value in labels.items():
        if not name.strip() or len(name) > MAX_LABEL or len(value) > MAX_LABEL:
            raise Invalid(field, f"A label has 1 to {MAX_LABEL} characters: {name[:60]!r}.")
        check_text(name, field)
        check_text(value, f"{field}.{name}")
    return labels


def _resources(request: TaskRequest, tier: str, plan: Plan) -> Resources:
    resources = amounts_of(request.resources, plan.known_tiers[tier])
    # Nothing would be no limit to the kernel, and the task could take all there is.
    if resources.memory_mb == 0:
        raise Invalid("resources.memory", "resources.memory must be above 0, at least 1 MiB.")
    if plan.max_resources:
        allowance.check_resources(resources, plan)
    return resources
