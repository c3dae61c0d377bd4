"""The flags of a schedule, and their conversion to the fields of a request.

The server parses the expressions and reports where a mistake is; conflicts between flags are
refused here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from typer import BadParameter, Option

from duly.cli.local_timezone import local_timezone
from duly.cli.tasks.flags import TaskFlags, with_flags
from duly.cli.tasks.submission.request import parse_seconds, task_fields
from duly.cli.tasks.times import is_duration, parse_instant
from duly.cli.written_flags import as_written
from duly.client.shapes.schedule_shapes import ScheduleFields
from duly.client.shapes.task_shapes import TaskFields
from duly.errors import Invalid
from duly.model.wording import either

CLEAR = "none"
CLOCK_RECURRENCES = ("daily", "weekly", "monthly", "annually", "cron")
"""Those that name times of day, which mean nothing without a timezone."""
RECURRENCES = (*CLOCK_RECURRENCES, "every")


@dataclass(frozen=True, kw_only=True)
class WhenFlags:
    """The flags for when a schedule fires; None means not given."""

    daily: Annotated[str | None, Option(metavar="06:30", help="Fire every day at this time.")] = (
        None
    )
    weekly: Annotated[
        str | None, Option(metavar="mon,thu@06:30", help="Fire on these days of every week.")
    ] = None
    monthly: Annotated[
        str | None, Option(metavar="31@06:30", help="Fire on these days of every month.")
    ] = None
    annually: Annotated[
        str | None, Option(metavar="12-24@06:30", help="Fire on this day of every year.")
    ] = None
    every: Annotated[str | None, Option(metavar="TIME", help="Fire at an interval: 15m, 3h.")] = (
        None
    )
    cron: Annotated[
        str | None, Option(metavar='"0 6 * * mon"', help="Fire by a cron expression.")
    ] = None
    timezone: Annotated[
        str | None,
        Option(
            metavar="ZONE",
            help="Timezone of these times, such as Europe/Berlin. [default: yours]",
        ),
    ] = None
    start: Annotated[
        str | None,
        Option(metavar="TIME", help="Do not fire before this time, such as 2027-01-31T06:30."),
    ] = None
    end: Annotated[str | None, Option(metavar="TIME", help="Do not fire after this time.")] = None
    jitter: Annotated[
        str | None,
        Option(metavar="TIME", help="Delay each start by a random time up to this: 10m."),
    ] = None
    short_month: Annotated[
        Literal["last", "skip"] | None,
        Option(help="For a day that a month lacks: use its last day, or skip it."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PolicyFlags(WhenFlags):
    """The flags for overlapping and missed occurrences."""

    overlap: Annotated[
        Literal["skip", "queue", "cancel_other", "allow"] | None,
        Option(help="What to do if an earlier occurrence has not ended. [default: skip]"),
    ] = None
    misfire: Annotated[
        Literal["skip", "once", "all"] | None,
        Option(
            help="What to do if fire times were missed, as while Duly was down. [default: once]"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScheduleFlags(TaskFlags, PolicyFlags):
    """The flags of a schedule and of its task."""

    name: Annotated[
        str | None, Option(metavar="NAME", help="Name of the schedule and of its tasks.")
    ] = None
    run_at: Annotated[
        str | None,
        Option(
            "--run-at",
            "--at",
            metavar="TIME",
            help="Fire once at this time, such as 2027-01-31T06:30.",
        ),
    ] = None
    run_in: Annotated[
        str | None, Option("--in", metavar="TIME", help="Fire once after this time: 10m.")
    ] = None
    # Every occurrence would be the same task. Hidden rather than absent: the server explains why.
    idempotency_key: Annotated[str | None, Option(metavar="KEY", hidden=True)] = None


def with_when_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of WhenFlags in place of its parameter `flags`."""
    return with_flags(WhenFlags, command)


def with_schedule_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of ScheduleFlags in place of its parameter `flags`."""
    return with_flags(ScheduleFlags, command)


def when_fields(flags: WhenFlags) -> ScheduleFields:
    """Return the fields of the recurrence for the flags that were given; `none` clears one."""
    recurrences = [
        recurrence for recurrence in RECURRENCES if getattr(flags, recurrence) is not None
    ]
    if len(recurrences) > 1:
        raise BadParameter(
            f"Give only one of {either((f'--{name}' for name in recurrences), 'and')}."
        )
    values: dict[str, Any] = {recurrence: getattr(flags, recurrence) for recurrence in recurrences}
    if flags.every is not None:
        values["every"] = parse_seconds("--every", flags.every)
    for name in ("timezone", "short_month"):
        if (value := getattr(flags, name)) is not None:
            values[name] = value
    for flag, name, text in (("--start", "start_at", flags.start), ("--end", "end_at", flags.end)):
        if text is not None:
            values[name] = None if text.strip() == CLEAR else parse_instant(flag, text)
    if flags.jitter is not None:
        none = flags.jitter.strip() == CLEAR
        values["jitter"] = None if none else parse_seconds("--jitter", flags.jitter)
    return values  # type: ignore[return-value] # the names are those of the fields


def add_local_timezone(fields: ScheduleFields) -> None:
    """Let times of day be those of the user's own timezone, unless another one is given."""
    if "timezone" in fields or not fields.keys() & {*CLOCK_RECURRENCES}:
        return
    zone = local_timezone()
    if zone is None:
        raise BadParameter(
            "The name of your timezone is unknown. Give it, as in --timezone Europe/Berlin or "
            "--timezone UTC."
        )
    fields["timezone"] = zone


def schedule_fields(
    flags: ScheduleFlags, command: list[str], *, now: datetime
) -> tuple[ScheduleFields, TaskFields]:
    """Return the fields of the schedule and the fields of its task."""
    values = when_fields(flags)
    task = task_fields(flags, command, now=now)
    if (run_at := task.pop("run_at", None)) is not None:
        if recurrences := [recurrence for recurrence in RECURRENCES if recurrence in values]:
            once = "--in" if flags.run_in else as_written("--run-at")
            raise BadParameter(f"Give only one of --{recurrences[0]} and {once}.")
        values["run_at"] = run_at
    if (name := task.get("name")) is not None:
        values["name"] = name
    if flags.overlap is not None:
        values["overlap"] = flags.overlap
    if flags.misfire is not None:
        values["misfire"] = flags.misfire
    return values, task


def require_when(values: ScheduleFields) -> None:
    """Refuse a schedule without a recurrence."""
    if "run_at" not in values and not any(recurrence in values for recurrence in RECURRENCES):
        flags = either([*(f"--{recurrence}" for recurrence in RECURRENCES), "--run-at"])
        raise BadParameter(f"The schedule needs a recurrence. Give one of {flags}.")


def has_any_flag(flags: WhenFlags) -> bool:
    """Return True if any of the flags was given."""
    return any(getattr(flags, field.name) is not None for field in fields(flags))


def parse_future(flag: str, text: str, now: datetime) -> datetime:
    """Parse a time, or a duration counted from now."""
    if is_duration(text):
        return now + timedelta(seconds=parse_seconds(flag, text))
    return parse_instant(flag, text)


@contextmanager
def marking_cron_errors(expression: str | None) -> Iterator[None]:
    """Show the position of a mistake in a cron expression below the error."""
    try:
        yield
    except Invalid as error:
        at = error.details.get("position")
        if expression is None or not isinstance(at, int) or not 0 <= at <= len(expression):
            raise
        from rich.cells import cell_len

        from duly.cli.output.text import clean

        before = " " * cell_len(clean(expression[:at]))
        error.message += f"\n  {clean(expression)}\n  {before}^"
        raise
