"""Schedules on the terminal: in the words in which they were written."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from duly.cli.tables import draw
from duly.cli.text import parse, say_time
from duly.client.schedule_shapes import FireTime, Schedule
from duly.duration import format_duration

WAYS = ("daily", "weekly", "monthly", "annually", "cron")
SPANS = ("execution_cap", "delay_tolerance")


def draw_schedules(schedules: Iterable[Schedule], now: datetime) -> None:
    """Print a list of schedules."""
    draw(
        ("ID", "WHEN", "ZONE", "NEXT RUN", "NAME", "USER"),
        (
            (
                one["id"],
                say_when(one),
                one["timezone"],
                say_next(one, now),
                one["name"] or "",
                one["user"] or "",
            )
            for one in schedules
        ),
    )


def schedule_details(one: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield what is known of a schedule; what means nothing is left out."""
    for name, value in _pairs(one, now):
        if value:
            yield name, value


def _pairs(one: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", one["id"]
    yield "name", one["name"] or ""
    yield "when", say_when(one)
    yield "timezone", one["timezone"]
    yield "short month", one["short_month"] or ""
    yield "start", say_time(one["start_at"], now)
    yield "end", say_time(one["end_at"], now)
    yield "jitter", _span(one["jitter"]) if one["jitter"] else ""
    yield "next run", say_next(one, now)
    yield "paused", say_time(one["paused_at"], now)
    yield "overlap", one["overlap"]
    yield "misfire", one["misfire"]
    yield "task", _task(one["task"] or {})
    yield "graph", _graph(one["graph"] or {})
    yield "tenant", one["tenant"]
    yield "user", one["user"] or ""
    yield "created", say_time(one["created_at"], now)
    if one["updated_at"] != one["created_at"]:
        yield "updated", say_time(one["updated_at"], now)


def say_when(one: Schedule) -> str:
    """Say when a schedule fires: "daily 06:30", "every 3h", "cron 0 6 * * mon"."""
    if one["every"] is not None:
        return f"every {_span(one['every'])}"
    if (at := parse(one["run_at"])) is not None:
        return f"once {at.astimezone():%Y-%m-%d %H:%M:%S}"
    fields: Mapping[str, Any] = one
    return next((f"{way} {fields[way]}" for way in WAYS if fields[way] is not None), "")


def say_next(one: Schedule, now: datetime) -> str:
    """Say when a schedule fires next, or why it does not."""
    if one["paused"]:
        return "paused"
    return say_time(one["next_run_at"], now) or "never again"


def draw_times(times: Iterable[str], zone: str, now: datetime) -> None:
    """Print fire times on the clock of their zone, and of whoever reads."""
    draw(
        ("FIRES", "HERE"),
        ((_in_zone(time, zone), say_time(time, now)) for time in times),
    )


def draw_history(found: Iterable[FireTime], statuses: Mapping[str, str], zone: str) -> None:
    """Print what became of fire times, with where their tasks or graphs are by now."""
    rows = list(found)
    what = "GRAPH" if any(one["graph"] for one in rows) else "TASK"
    draw(
        ("FIRES", what, "STATUS", "REASON"),
        (_history_row(one, statuses, zone) for one in rows),
    )


def _history_row(
    one: FireTime, statuses: Mapping[str, str], zone: str
) -> tuple[str, str, str, str]:
    fires = _in_zone(one["fire_at"], zone)
    if one["times"] > 1:
        fires = f"{fires} to {_in_zone(one['last_at'], zone)} ({one['times']} times)"
    reason = one["reason"]["message"] if one["reason"] else ""
    made = one["task"] or one["graph"]
    return fires, made or "none", statuses.get(made, "") if made else "missed", reason


def _in_zone(time: str, zone: str) -> str:
    at = parse(time)
    if at is None:
        return ""
    try:
        return f"{at.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %Z}"
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # This machine may know fewer zones than the server does.
        return f"{at:%a %Y-%m-%d %H:%M:%S %Z}"


def _task(task: Mapping[str, Any]) -> str:
    """Say what a schedule submits: what to run, and then every field that was given."""
    command = task.get("command")
    lines = [shlex.join(map(str, command))] if isinstance(command, list) else []
    if task.get("source"):
        lines.append("a script that was sent along")
    if task.get("env"):
        # Their values may be secrets, and somebody may look over the shoulder.
        lines.append(f"env: {', '.join(task['env'])}")
    lines += [
        f"{name.replace('_', ' ')}: {_span(value) if name in SPANS else _value(value)}"
        for name, value in task.items()
        if name not in ("command", "source", "env")
    ]
    return "\n".join(lines)


def _graph(graph: Mapping[str, Any]) -> str:
    """Say what a schedule of a graph submits: its tasks, each after what it depends on."""
    lines = [graph["name"]] if graph.get("name") else []
    for task in graph.get("tasks", ()):
        upstreams = ", ".join(
            one if isinstance(one, str) else f"{one['task']} ({one['on']})"
            for one in task.get("depends_on", ())
        )
        lines.append(f"{task['ref']}{f' after {upstreams}' if upstreams else ''}")
    return "\n".join(lines)


def _span(value: float | str) -> str:
    """Say seconds as people do; whole ones without a fraction."""
    if isinstance(value, str):
        return value
    return format_duration(timedelta(seconds=value)).replace(".0s", "s")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return ", ".join(map(_value, value)) if isinstance(value, list) else str(value)


def say_made(one: Schedule, now: datetime) -> str:
    """Say that a schedule is there, and when it fires first."""
    return f"created {one['id']}, {say_when(one)}: fires first {say_time(one['next_run_at'], now)}"
