"""Prints schedules and their occurrences as tables."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from duly.cli.output.tables import print_table
from duly.cli.output.text import format_moment, format_time, parse_time
from duly.cli.schedules.schedule_flags import CLOCK_RECURRENCES
from duly.client.shapes.schedule_shapes import Occurrence, Schedule
from duly.duration import format_duration

DURATION_FIELDS = ("execution_cap", "delay_tolerance")


def print_schedules(schedules: Iterable[Schedule], now: datetime) -> None:
    """Print a list of schedules."""
    print_table(
        ("ID", "WHEN", "ZONE", "NEXT RUN", "NAME", "USER"),
        (
            (
                item["id"],
                format_recurrence(item),
                item["timezone"],
                format_next_run(item, now),
                item["name"] or "",
                item["user"] or "",
            )
            for item in schedules
        ),
    )


def schedule_details(item: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the fields of a schedule; empty ones are left out."""
    for name, value in _pairs(item, now):
        if value:
            yield name, value


def _pairs(item: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", item["id"]
    yield "name", item["name"] or ""
    yield "when", format_recurrence(item)
    yield "timezone", item["timezone"]
    yield "short month", item["short_month"] or ""
    yield "start", format_time(item["start_at"], now)
    yield "end", format_time(item["end_at"], now)
    yield "jitter", _format_duration(item["jitter"]) if item["jitter"] else ""
    yield "next run", format_next_run(item, now)
    yield "paused", format_time(item["paused_at"], now)
    yield "overlap", item["overlap"]
    yield "misfire", item["misfire"]
    yield "task", _describe_task(item["task"] or {})
    yield "graph", _describe_graph(item["graph"] or {})
    yield "tenant", item["tenant"]
    yield "user", item["user"] or ""
    yield "created", format_time(item["created_at"], now)
    if item["updated_at"] != item["created_at"]:
        yield "updated", format_time(item["updated_at"], now)


def format_recurrence(item: Schedule) -> str:
    """Format the recurrence of a schedule: "daily 06:30", "every 3 h", "cron 0 6 * * mon"."""
    if item["every"] is not None:
        return f"every {_format_duration(item['every'])}"
    if (at := parse_time(item["run_at"])) is not None:
        return f"once {at.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    fields: Mapping[str, Any] = item
    return next(
        (f"{way} {fields[way]}" for way in CLOCK_RECURRENCES if fields[way] is not None), ""
    )


def format_next_run(item: Schedule, now: datetime) -> str:
    """Format the next fire time of a schedule, or why there is none."""
    if item["paused"]:
        return "paused"
    return format_time(item["next_run_at"], now) or "never again"


def print_fire_times(times: Iterable[str], zone: str, now: datetime) -> None:
    """Print fire times in the schedule's timezone and in the local one."""
    print_table(
        ("FIRES", "LOCAL TIME"),
        ((_in_zone(time, zone), format_time(time, now)) for time in times),
    )


def print_occurrences(found: Iterable[Occurrence], statuses: Mapping[str, str], zone: str) -> None:
    """Print occurrences with the current status of their tasks or graphs."""
    rows = list(found)
    what = "GRAPH" if any(item["graph"] for item in rows) else "TASK"
    print_table(
        ("FIRES", what, "STATUS", "REASON"),
        (_history_row(item, statuses, zone) for item in rows),
    )


def _history_row(
    item: Occurrence, statuses: Mapping[str, str], zone: str
) -> tuple[str, str, str, str]:
    fires = _in_zone(item["fire_at"], zone)
    if item["times"] > 1:
        fires = f"{fires} to {_in_zone(item['last_at'], zone)} ({item['times']} times)"
    reason = item["reason"]["message"] if item["reason"] else ""
    submitted = item["task"] or item["graph"]
    return (
        fires,
        submitted or "none",
        statuses.get(submitted, "") if submitted else "missed",
        reason,
    )


def _in_zone(time: str, zone: str) -> str:
    at = parse_time(time)
    if at is None:
        return ""
    try:
        return f"{at.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %Z}"
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # This machine may have fewer timezones installed than the server.
        return f"{at:%a %Y-%m-%d %H:%M:%S %Z}"


def _describe_task(task: Mapping[str, Any]) -> str:
    """Describe the task of a schedule: its command, then the fields that were given."""
    command = task.get("command")
    lines = [shlex.join(map(str, command))] if isinstance(command, list) else []
    if task.get("source"):
        lines.append("an uploaded script")
    if task.get("env"):
        # Only the names: the values may be secrets.
        lines.append(f"env: {', '.join(task['env'])}")
    if task.get("stdin") is not None:
        # Only the size: the input may be long, and may be a secret.
        lines.append(f"stdin: {len(task['stdin'].encode())} bytes")
    lines += [
        f"{name.replace('_', ' ')}: "
        f"{_format_duration(value) if name in DURATION_FIELDS else _format_value(value)}"
        for name, value in task.items()
        if name not in ("command", "source", "env", "stdin")
    ]
    return "\n".join(lines)


def _describe_graph(graph: Mapping[str, Any]) -> str:
    """Describe the graph of a schedule: its tasks with their upstreams."""
    lines = [graph["name"]] if graph.get("name") else []
    for task in graph.get("tasks", ()):
        upstreams = ", ".join(
            item if isinstance(item, str) else f"{item['task']} ({item['on']})"
            for item in task.get("depends_on", ())
        )
        lines.append(f"{task['ref']}{f' after {upstreams}' if upstreams else ''}")
    return "\n".join(lines)


def _format_duration(value: float | str) -> str:
    """Format seconds; whole ones without a fraction."""
    if isinstance(value, str):
        return value
    return format_duration(timedelta(seconds=value)).replace(".0 s", " s")


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return ", ".join(map(_format_value, value)) if isinstance(value, list) else str(value)


def describe_created(item: Schedule, now: datetime) -> str:
    """Return a sentence with a new schedule's ID, recurrence and first fire time."""
    when = format_recurrence(item)
    if item["every"] is None and item["run_at"] is None:
        when = f"{when} ({item['timezone']})"
    return f"Schedule {item['id']} created: {when}. {describe_next_run(item, now, 'It first runs')}"


def describe_next_run(item: Schedule, now: datetime, words: str = "It next runs") -> str:
    """Return a sentence with the next fire time of a schedule, or why there is none."""
    if item["paused"]:
        return "It is paused."
    if item["next_run_at"] is None:
        return "It does not run again."
    return f"{words} at {format_moment(item['next_run_at'], now)}."
