"""Plans, tiers and limits on the terminal."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from duly.cli.details import say_resources
from duly.cli.tables import draw, draw_pairs
from duly.client.plan_shapes import Count, Limits, Plan, ResourceCount, Tier
from duly.duration import format_duration
from duly.model.numerals import plain

NO_LIMIT = "no limit"
BYTES = ("max_log_bytes", "max_result_bytes", "max_artifact_bytes", "artifact_bytes")
PRICES = ("price_per_task", "price_per_cpu_hour", "price_per_gib_hour")
TIMES = (
    "delay_tolerance",
    "max_delay_tolerance",
    "execution_cap",
    "max_execution_cap",
    "retention",
)


def draw_plans(plans: Iterable[Plan]) -> None:
    """Print a list of plans."""
    draw(
        ("NAME", "TASKS/H", "BURST", "RUNNING", "WAITING", "TIERS", "LONGEST CAP", "TENANTS"),
        (
            (
                one["name"],
                say("tasks_per_hour", one["tasks_per_hour"]),
                say("burst", one["burst"]),
                say("max_running", one["max_running"]),
                say("max_waiting", one["max_waiting"]),
                say("tiers", one["tiers"]),
                say("max_execution_cap", one["max_execution_cap"]),
                "" if one["tenants"] is None else str(one["tenants"]),
            )
            for one in plans
        ),
        right=("TASKS/H", "BURST", "RUNNING", "WAITING", "TENANTS"),
    )


def plan_details(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what a plan grants."""
    fields: Mapping[str, Any] = plan
    for name, value in fields.items():
        if name == "tenants" and value is None:
            continue
        if name != "created_at":
            yield name.replace("_", " "), say(name, value)


def draw_tiers(tiers: Iterable[Tier]) -> None:
    """Print what names of tiers stand for."""
    draw(
        ("NAME", "RESOURCES", "SAID BY", "IN YOUR PLAN"),
        (
            (
                one["name"],
                say_resources(one["resources"]),
                one["defined_by"],
                "yes" if one["allowed"] else "no",
            )
            for one in tiers
        ),
    )


def draw_limits(limits: Limits) -> None:
    """Print what a tenant may have, what is used of it, and the rest of its plan."""
    draw(("WHAT", "USED / LIMIT", "LEFT"), _counts(limits))
    print()
    draw_pairs(_rest(limits))


def _counts(limits: Limits) -> Iterator[tuple[str, str, str]]:
    rate = limits["rate"]
    if rate is None:
        yield "submitted at once", f"- / {NO_LIMIT}", NO_LIMIT
    else:
        soon = _time(rate["full_in"])
        left = f"{rate['left']}" + (f", all in {soon}" if rate["left"] < rate["burst"] else "")
        yield "submitted at once", f"{rate['burst'] - rate['left']} / {rate['burst']}", left
    yield _count("running", limits["running"])
    yield from _resources(limits["resources"])
    yield _count("waiting", limits["waiting"])
    yield _count("schedules", limits["schedules"])
    yield _count("artifact bytes", limits["artifact_bytes"])


def _count(name: str, count: Count) -> tuple[str, str, str]:
    limit = say(name, count["limit"])
    return name, f"{count['used']} / {limit}", say(name, count["left"])


def _resources(count: ResourceCount) -> Iterator[tuple[str, str, str]]:
    limit, left = count["limit"], count["left"]
    if limit is None or left is None:
        yield "resources", f"{say_resources(count['used'])} / {NO_LIMIT}", NO_LIMIT
        return
    used: dict[str, Any] = {**count["used"], **count["used"]["extra"]}
    flat, rest = ({**one, **one.get("extra", {})} for one in (limit, left))
    for kind in flat:
        if kind != "extra":
            yield (
                kind.replace("_mb", " (MiB)"),
                f"{plain(used.get(kind, 0))} / {plain(flat[kind])}",
                plain(rest[kind]),
            )


def _rest(limits: Limits) -> Iterator[tuple[str, str]]:
    yield "tenant", limits["tenant"]
    yield "plan", limits["plan"]
    rate = limits["rate"]
    yield "tasks per hour", NO_LIMIT if rate is None else str(rate["tasks_per_hour"])
    yield (
        "tiers",
        "\n".join(f"{name}: {say_resources(one)}" for name, one in limits["tiers"].items()),
    )
    yield "queues", say("queues", limits["queues"])
    cap, tolerance = limits["execution_cap"], limits["delay_tolerance"]
    yield "execution cap", _span(cap["default"], cap["longest"])
    yield "delay tolerance", _span(tolerance["default"], tolerance["longest"])
    if tolerance["categories"]:
        yield "by category", say("tolerances", tolerance["categories"])
    yield "history", f"kept for {_time(limits['retention'])}"
    yield "log", say("max_log_bytes", limits["log_bytes"])
    yield "result", say("max_result_bytes", limits["result_bytes"])
    yield "an artifact", say("max_artifact_bytes", limits["max_artifact_bytes"])
    yield "cpu quota", say("cpu_quota", limits["cpu_quota"])


def _span(default: float, longest: float | None) -> str:
    most = NO_LIMIT if longest is None else f"at most {_time(longest)}"
    return f"{_time(default)} unless told, {most}"


def say(name: str, value: Any) -> str:
    """Say the value of a field of a plan: a time, a size, a list, or that there is no limit."""
    if value is None:
        return "as long as the server keeps history" if name == "retention" else NO_LIMIT
    if name in TIMES:
        return _time(value)
    if name in BYTES:
        return f"{value} bytes"
    if name == "tolerances":
        said = (f"{one} {_time(time)}" for one, time in value.items())
        return ", ".join(said) or "none"
    if name == "max_resources":
        return say_resources(value)
    if name in PRICES:
        return plain(value)
    if name == "cpu_quota":
        return "yes" if value else "no"
    return (", ".join(value) or "none") if isinstance(value, list) else f"{value}"


def _time(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
