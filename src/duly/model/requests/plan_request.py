"""The request for a plan, and its conversion into a `Plan`.

As with tasks, decoding checks types and unknown fields, and this module checks the meaning: a
missing field gets a default, bounds must be possible, and related fields must be consistent.
"""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec

from duly.duration import MAX_DURATION, format_duration, parse_duration
from duly.errors import Invalid
from duly.model.requests.allowance import DEFAULT_DELAY_TOLERANCE, DEFAULT_EXECUTION_CAP
from duly.model.requests.amounts import (
    ResourcesRequest,
    amounts_to_json,
    check_extra,
    requested_kinds,
)
from duly.model.requests.plan_names import check_name
from duly.model.tenant import Plan

MAX_COUNT = 2_000_000_000
"""The upper bound of every count."""
MAX_BYTES = 10**15
MAX_TASKS_PER_HOUR = 10**12
MAX_PRICE = 1_000_000
MAX_WEIGHT = 1000
MIN_RETENTION = timedelta(days=1)
"""History is deleted in whole days, and the audit recounts yesterday's usage."""
MAX_NAMES = 50
"""Tiers or categories in one plan."""


class PlanRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/plans. A missing or null field means no limit, or the default."""

    name: str
    price_class: str | None = None
    price_per_task: float | None = None
    price_per_cpu_hour: float | None = None
    price_per_gib_hour: float | None = None
    tasks_per_hour: int | None = None
    burst: int | None = None
    max_running: int | None = None
    max_resources: ResourcesRequest | None = None
    max_waiting: int | None = None
    max_schedules: int | None = None
    tiers: list[str] | None = None
    queues: list[str] | None = None
    delay_tolerance: float | str | None = None
    max_delay_tolerance: float | str | None = None
    tolerances: dict[str, float | str] | None = None
    execution_cap: float | str | None = None
    max_execution_cap: float | str | None = None
    weight: int | None = None
    retention: float | str | None = None
    max_log_bytes: int | None = None
    max_result_bytes: int | None = None
    max_artifact_bytes: int | None = None
    artifact_bytes: int | None = None
    cpu_quota: bool | None = None


def plan_from(request: PlanRequest) -> Plan:
    """Check `request` and fill in the defaults; raises Invalid for the first bad field."""
    rate = _integer(request.tasks_per_hour, "tasks_per_hour", 1, MAX_TASKS_PER_HOUR)
    burst = _integer(request.burst, "burst", 1, MAX_TASKS_PER_HOUR)
    _check_rate(rate, burst)
    longest_cap = _duration(request.max_execution_cap, "max_execution_cap") or MAX_DURATION
    longest_tolerance = _duration(request.max_delay_tolerance, "max_delay_tolerance", zero=True)
    return Plan(
        name=check_name(request.name),
        price_class=check_name(request.price_class or "standard", "price_class"),
        price_per_task=_price(request.price_per_task, "price_per_task"),
        price_per_cpu_hour=_price(request.price_per_cpu_hour, "price_per_cpu_hour"),
        price_per_gib_hour=_price(request.price_per_gib_hour, "price_per_gib_hour"),
        tasks_per_hour=rate,
        burst=burst,
        max_running=_integer(request.max_running, "max_running", 1),
        max_resources=_resources(request.max_resources),
        max_waiting=_integer(request.max_waiting, "max_waiting", 1),
        max_schedules=_integer(request.max_schedules, "max_schedules", 0),
        tiers=_names(request.tiers, "tiers"),
        queues=_queues(request.queues),
        delay_tolerance=_delay_tolerance(request.delay_tolerance, longest_tolerance),
        max_delay_tolerance=longest_tolerance,
        tolerances=_tolerances(request.tolerances or {}, longest_tolerance),
        execution_cap=_execution_cap(request.execution_cap, longest_cap),
        max_execution_cap=longest_cap,
        weight=check_weight(request.weight) or 1,
        retention=_retention(request.retention),
        max_log_bytes=_integer(request.max_log_bytes, "max_log_bytes", 0, MAX_BYTES),
        max_result_bytes=_integer(request.max_result_bytes, "max_result_bytes", 0, MAX_BYTES),
        max_artifact_bytes=_integer(request.max_artifact_bytes, "max_artifact_bytes", 0, MAX_BYTES),
        artifact_bytes=_integer(request.artifact_bytes, "artifact_bytes", 0, MAX_BYTES),
        cpu_quota=bool(request.cpu_quota),
    )


def change_plan(plan: Plan, changes: Mapping[str, Any]) -> Plan:
    """Return `plan` with the given fields changed, checked as a whole; null removes a bound."""
    if changes.get("name", plan.name) != plan.name:
        raise Invalid(
            "name",
            "a plan keeps its name. Create another plan, and give it to the tenants of this one.",
        )
    new = plan_from(msgspec.convert({**_as_request(plan), **changes}, PlanRequest))
    # Unchanged fields stay as they are, to the last digit of a price.
    fields = (field for field in Plan.__struct_fields__ if field not in changes)
    return msgspec.structs.replace(new, **{field: getattr(plan, field) for field in fields})


def check_weight(weight: int | None) -> int | None:
    """Return the weight of a plan or a tenant; raises Invalid if it is out of range."""
    return _integer(weight, "weight", 1, MAX_WEIGHT)


def check_retention(asked: timedelta | None, history: timedelta) -> None:
    """Refuse more than the server keeps: `history` is deleted for all tenants at once."""
    if asked is not None and asked > history:
        raise Invalid(
            "retention",
            f"{format_duration(asked)} is more than the {format_duration(history)} that the server "
            "keeps (the setting retention.history).",
        )


def _as_request(plan: Plan) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in PlanRequest.__struct_fields__:
        value = getattr(plan, name)
        if isinstance(value, timedelta):
            value = value.total_seconds()
        fields[name] = float(value) if isinstance(value, Decimal) else value
    if plan.max_execution_cap >= MAX_DURATION:
        fields["max_execution_cap"] = None
    if plan.max_resources is not None:
        fields["max_resources"] = amounts_to_json(plan.max_resources)
    return fields


def _check_rate(rate: int | None, burst: int | None) -> None:
    if burst is not None and rate is None:
        raise Invalid("burst", "it needs tasks_per_hour. Give both or neither.")
    if rate is not None and burst is None:
        raise Invalid(
            "burst",
            "it is missing. With tasks_per_hour, say how many tasks may come at once, from 1.",
        )


def _delay_tolerance(asked: float | str | None, longest: timedelta | None) -> timedelta:
    if asked is None:
        return DEFAULT_DELAY_TOLERANCE if longest is None else min(DEFAULT_DELAY_TOLERANCE, longest)
    return _within(parse_duration(asked, "delay_tolerance"), "delay_tolerance", longest)


def _tolerances(asked: dict[str, float | str], longest: timedelta | None) -> dict[str, float]:
    if len(asked) > MAX_NAMES:
        raise Invalid(
            "tolerances", f"it names {len(asked)} categories; at most {MAX_NAMES} are allowed."
        )
    found = {}
    for category, text in asked.items():
        field = f"tolerances.{check_name(category, 'tolerances')}"
        found[category] = _within(parse_duration(text, field), field, longest).total_seconds()
    return found


def _within(tolerance: timedelta, field: str, longest: timedelta | None) -> timedelta:
    if longest is not None and tolerance > longest:
        raise _exceeds_bound(field, tolerance, "max_delay_tolerance", longest)
    return tolerance


def _execution_cap(asked: float | str | None, longest: timedelta) -> timedelta:
    cap = _duration(asked, "execution_cap")
    if cap is None:
        return min(DEFAULT_EXECUTION_CAP, longest)
    if cap > longest:
        raise _exceeds_bound("execution_cap", cap, "max_execution_cap", longest)
    return cap


def _exceeds_bound(field: str, value: timedelta, bound: str, longest: timedelta) -> Invalid:
    return Invalid(
        field,
        f"{format_duration(value)} is more than {bound}, which is {format_duration(longest)}. A "
        "default must be within the limit.",
    )


def _duration(value: float | str | None, field: str, *, zero: bool = False) -> timedelta | None:
    if value is None:
        return None
    found = parse_duration(value, field)
    if found <= timedelta(0) and not zero:
        raise Invalid(field, "it must be more than 0.")
    return found


def _retention(asked: float | str | None) -> timedelta | None:
    found = _duration(asked, "retention")
    if found is not None and found < MIN_RETENTION:
        raise Invalid(
            "retention",
            f"{format_duration(found)} is too short. Use at least "
            f"{format_duration(MIN_RETENTION)}, or leave it out.",
        )
    return found


def _integer(value: int | None, field: str, low: int, high: int = MAX_COUNT) -> int | None:
    if value is not None and not low <= value <= high:
        raise Invalid(field, f"{value} is not a whole number from {low} to {high}.")
    return value


def _price(value: float | None, field: str) -> Decimal:
    # The comparison also refuses NaN.
    if value is not None and not 0 <= value <= MAX_PRICE:
        raise Invalid(field, f"{value} is not a number from 0 to {MAX_PRICE}.")
    return Decimal(str(value or 0))


def _names(names: list[str] | None, field: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not names:
        raise Invalid(
            field, "it is empty, so no task could run. Name at least one, or leave it out."
        )
    if len(names) > MAX_NAMES:
        raise Invalid(field, f"it has {len(names)} names; at most {MAX_NAMES} are allowed.")
    return tuple(dict.fromkeys(check_name(name, field) for name in names))


def _queues(names: list[str] | None) -> tuple[str, ...] | None:
    """Return the queues of a plan; whether they exist is checked when it is stored."""
    if names is None:
        return None
    return tuple(dict.fromkeys(check_name(name, "queues") for name in names))


def _resources(asked: ResourcesRequest | None) -> dict[str, int] | None:
    if asked is None:
        return None
    try:
        kinds = requested_kinds(asked)
        # Not from `requested_kinds`, which drops zeros: zero of a kind is a bound too.
        extra = {} if asked.extra is None else {**asked.extra} | check_extra(asked.extra)
    except Invalid as error:
        problem = error.problem.replace(error.field, f"max_{error.field}")
        raise Invalid(f"max_{error.field}", problem) from None
    kinds.pop("extra", None)
    if not kinds and not extra:
        raise Invalid("max_resources", "it is empty. Give an amount, or leave it out.")
    if kinds.get("memory_mb") == 0:
        raise Invalid("max_resources.memory", "0 is too little. It must be more than 0.")
    return {**kinds, **extra}
