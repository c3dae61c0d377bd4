"""Prints plans, tiers and limits as tables."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from duly.cli.output.details import format_resources
from duly.cli.output.tables import print_pairs, print_table
from duly.client.shapes.plan_shapes import Count, Limits, Plan, ResourceCount, Tier
from duly.duration import format_duration
from duly.model.numerals import format_number
from duly.model.wording import format_bytes

NO_LIMIT = "no limit"
BYTE_FIELDS = ("max_log_bytes", "max_result_bytes", "max_artifact_bytes", "artifact_bytes")
PRICE_FIELDS = ("price_per_task", "price_per_cpu_hour", "price_per_gib_hour")
DURATION_FIELDS = (
    "delay_tolerance",
    "max_delay_tolerance",
    "execution_cap",
    "max_execution_cap",
    "retention",
)


def print_plans(plans: Iterable[Plan]) -> None:
    """Print a list of plans."""
    print_table(
        ("NAME", "TASKS/H", "BURST", "RUNNING", "WAITING", "TIERS", "LONGEST CAP", "TENANTS"),
        (
            (
                plan["name"],
                format_field("tasks_per_hour", plan["tasks_per_hour"]),
                format_field("burst", plan["burst"]),
                format_field("max_running", plan["max_running"]),
                format_field("max_waiting", plan["max_waiting"]),
                format_field("tiers", plan["tiers"]),
                format_field("max_execution_cap", plan["max_execution_cap"]),
                "" if plan["tenants"] is None else str(plan["tenants"]),
            )
            for plan in plans
        ),
        right=("TASKS/H", "BURST", "RUNNING", "WAITING", "TENANTS"),
    )


def plan_details(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the fields of a plan for display."""
    fields: Mapping[str, Any] = plan
    for name, value in fields.items():
        if name == "tenants" and value is None:
            continue
        if name != "created_at":
            yield name.replace("_", " "), format_field(name, value)


def print_tiers(tiers: Iterable[Tier]) -> None:
    """Print a list of tiers."""
    print_table(
        ("NAME", "RESOURCES", "DEFINED BY", "IN YOUR PLAN"),
        (
            (
                tier["name"],
                format_resources(tier["resources"]),
                tier["defined_by"],
                "yes" if tier["allowed"] else "no",
            )
            for tier in tiers
        ),
    )


def print_limits(limits: Limits) -> None:
    """Print a tenant's limits with their usage, then the other settings of its plan."""
    print_table(("WHAT", "USED / LIMIT", "LEFT"), _usage_rows(limits))
    print()
    print_pairs(_other_limits(limits))


def _usage_rows(limits: Limits) -> Iterator[tuple[str, str, str]]:
    rate = limits["rate"]
    if rate is None:
        yield "submitted at once", f"- / {NO_LIMIT}", NO_LIMIT
    else:
        soon = _format_seconds(rate["full_in"])
        left = f"{rate['left']}" + (f", all in {soon}" if rate["left"] < rate["burst"] else "")
        yield "submitted at once", f"{rate['burst'] - rate['left']} / {rate['burst']}", left
    yield _count_row("running", limits["running"])
    yield from _resource_rows(limits["resources"])
    yield _count_row("waiting", limits["waiting"])
    yield _count_row("schedules", limits["schedules"])
    yield _count_row("artifact bytes", limits["artifact_bytes"])


def _count_row(name: str, count: Count) -> tuple[str, str, str]:
    limit = format_field(name, count["limit"])
    return name, f"{count['used']} / {limit}", format_field(name, count["left"])


def _resource_rows(count: ResourceCount) -> Iterator[tuple[str, str, str]]:
    limit, left = count["limit"], count["left"]
    if limit is None or left is None:
        yield "resources", f"{format_resources(count['used'])} / {NO_LIMIT}", NO_LIMIT
        return
    used: dict[str, Any] = {**count["used"], **count["used"]["extra"]}
    flat, rest = ({**amounts, **amounts.get("extra", {})} for amounts in (limit, left))
    for kind in flat:
        if kind != "extra":
            yield (
                kind.replace("_mb", " (MiB)"),
                f"{format_number(used.get(kind, 0))} / {format_number(flat[kind])}",
                format_number(rest[kind]),
            )


def _other_limits(limits: Limits) -> Iterator[tuple[str, str]]:
    yield "tenant", limits["tenant"]
    yield "plan", limits["plan"]
    rate = limits["rate"]
    yield "tasks per hour", NO_LIMIT if rate is None else str(rate["tasks_per_hour"])
    yield (
        "tiers",
        "\n".join(
            f"{name}: {format_resources(resources)}" for name, resources in limits["tiers"].items()
        ),
    )
    yield "queues", format_field("queues", limits["queues"])
    cap, tolerance = limits["execution_cap"], limits["delay_tolerance"]
    yield "execution cap", _default_and_longest(cap["default"], cap["longest"])
    yield "delay tolerance", _default_and_longest(tolerance["default"], tolerance["longest"])
    if tolerance["categories"]:
        yield "by category", format_field("tolerances", tolerance["categories"])
    yield "history", f"kept for {_format_seconds(limits['retention'])}"
    yield "log", format_field("max_log_bytes", limits["log_bytes"])
    yield "result", format_field("max_result_bytes", limits["result_bytes"])
    yield "an artifact", format_field("max_artifact_bytes", limits["max_artifact_bytes"])
    yield "cpu quota", format_field("cpu_quota", limits["cpu_quota"])


def _default_and_longest(default: float, longest: float | None) -> str:
    most = NO_LIMIT if longest is None else f"at most {_format_seconds(longest)}"
    return f"{_format_seconds(default)} by default, {most}"


def format_field(name: str, value: Any) -> str:
    """Format a field of a plan: a duration, a size, a list, or "no limit"."""
    if value is None:
        return "as long as the server keeps history" if name == "retention" else NO_LIMIT
    if name in DURATION_FIELDS:
        return _format_seconds(value)
    if name in BYTE_FIELDS:
        return format_bytes(value)
    if name == "tolerances":
        said = (f"{kind} {_format_seconds(time)}" for kind, time in value.items())
        return ", ".join(said) or "none"
    if name == "max_resources":
        return format_resources(value)
    if name in PRICE_FIELDS:
        return format_number(value)
    if name == "cpu_quota":
        return "yes" if value else "no"
    return (", ".join(value) or "none") if isinstance(value, list) else f"{value}"


def _format_seconds(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
