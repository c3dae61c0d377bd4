"""The flags that say when a schedule fires, and how they become the fields of a request.

An expression is read by the server, which tells where the mistake is; what belongs to the
command line alone, such as two flags that contradict each other, is refused here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from typer import BadParameter, Option

from duly.cli.flags import TaskFlags, with_flags
from duly.cli.request import duration, instant, is_duration, task_fields
from duly.client.schedule_shapes import ScheduleFields
from duly.client.shapes import TaskFields
from duly.errors import Invalid

NONE = "none"
WAYS = ("daily", "weekly", "monthly", "annually", "every", "cron")


@dataclass(frozen=True, kw_only=True)
class WhenFlags:
    """What was said on the command line of when a schedule fires; None is what was not said."""

    daily: Annotated[str | None, Option(metavar="06:30", help="Every day at this time.")] = None
    weekly: Annotated[
        str | None, Option(metavar="mon,thu@06:30", help="On these days of every week.")
    ] = None
    monthly: Annotated[
        str | None, Option(metavar="31@06:30", help="On these days of every month.")
    ] = None
    annually: Annotated[
        str | None, Option(metavar="12-24@06:30", help="On this day of every year.")
    ] = None
    every: Annotated[str | None, Option(metavar="PT3H", help="At an interval: 15m, 3h.")] = None
    cron: Annotated[str | None, Option(metavar='"0 6 * * mon"', help="As the expression says.")] = (
        None
    )
    timezone: Annotated[
        str | None,
        Option(metavar="ZONE", help="Whose clock is meant: Europe/Berlin; UTC if not said."),
    ] = None
    start: Annotated[
        str | None, Option(metavar="TIME", help="Nothing fires before, such as 2027-01-31T06:30.")
    ] = None
    end: Annotated[str | None, Option(metavar="TIME", help="Nothing fires after.")] = None
    jitter: Annotated[
        str | None, Option(metavar="TIME", help="By how much a start may be put off: 10m.")
    ] = None
    short_month: Annotated[
        Literal["last", "skip"] | None,
        Option(help="What stands for a day that a month does not have: its last day, or nothing."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PolicyFlags(WhenFlags):
    """And what is done when it goes wrong."""

    overlap: Annotated[
        Literal["skip", "queue", "cancel_other", "allow"] | None,
        Option(help="If an earlier occurrence has not ended; skip if not said."),
    ] = None
    misfire: Annotated[
        Literal["skip", "once", "all"] | None,
        Option(help="If nobody saw to a fire time in time; once if not said."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScheduleFlags(TaskFlags, PolicyFlags):
    """What was said of a schedule and of its task."""

    name: Annotated[str | None, Option(help="A name to find it by; its tasks get it, too.")] = None
    run_at: Annotated[
        str | None,
        Option("--run-at", "--at", metavar="TIME", help="Once, such as 2027-01-31T06:30."),
    ] = None
    run_in: Annotated[
        str | None, Option("--in", metavar="TIME", help="Once, after that much time: 10m.")
    ] = None
    # Every occurrence would be the same task. Hidden, so that whoever tries is told why.
    idempotency_key: Annotated[str | None, Option(metavar="KEY", hidden=True)] = None


def with_when_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of WhenFlags in place of its parameter `flags`."""
    return with_flags(WhenFlags, command)


def with_schedule_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of ScheduleFlags in place of its parameter `flags`."""
    return with_flags(ScheduleFlags, command)


def when_fields(flags: WhenFlags) -> ScheduleFields:
    """Return when it is to fire, without what was not said; `none` takes something away."""
    ways = [way for way in WAYS if getattr(flags, way) is not None]
    if len(ways) > 1:
        raise BadParameter(
            "Both say when. Give only one of them.",
            param_hint=" and ".join(f"--{way}" for way in ways),
        )
    said: dict[str, Any] = {way: getattr(flags, way) for way in ways}
    if flags.every is not None:
        said["every"] = duration("--every", flags.every)
    for name in ("timezone", "short_month"):
        if (value := getattr(flags, name)) is not None:
            said[name] = value
    for flag, name, text in (("--start", "start_at", flags.start), ("--end", "end_at", flags.end)):
        if text is not None:
            said[name] = None if text.strip() == NONE else instant(flag, text)
    if flags.jitter is not None:
        none = flags.jitter.strip() == NONE
        said["jitter"] = None if none else duration("--jitter", flags.jitter)
    return said  # type: ignore[return-value] # the names are those of the fields


def schedule_fields(
    flags: ScheduleFlags, command: list[str], *, now: datetime
) -> tuple[ScheduleFields, TaskFields]:
    """Return what was said of the schedule, and what of its task."""
    said = when_fields(flags)
    task = task_fields(flags, command, now=now)
    if (run_at := task.pop("run_at", None)) is not None:
        if ways := [way for way in WAYS if way in said]:
            raise BadParameter(
                "Both say when. Give only one of them.",
                param_hint=f"--{ways[0]} and {'--in' if flags.run_in else '--run-at'}",
            )
        said["run_at"] = run_at
    if (name := task.get("name")) is not None:
        said["name"] = name
    if flags.overlap is not None:
        said["overlap"] = flags.overlap
    if flags.misfire is not None:
        said["misfire"] = flags.misfire
    return said, task


def require_when(said: ScheduleFields) -> None:
    """Refuse a schedule that does not say when."""
    if "run_at" not in said and not any(way in said for way in WAYS):
        ways = ", ".join(f"--{way}" for way in WAYS)
        raise BadParameter(f"Say when: one of {ways} or --run-at.")


def said_anything(flags: WhenFlags) -> bool:
    """Return whether any of the flags was given."""
    return any(getattr(flags, field.name) is not None for field in fields(flags))


def ahead(flag: str, text: str, now: datetime) -> datetime:
    """Read a time, or a duration from now on."""
    if is_duration(text):
        return now + timedelta(seconds=duration(flag, text))
    return instant(flag, text)


@contextmanager
def pointing(expression: str | None) -> Iterator[None]:
    """Let a mistake in a cron expression be shown where it is."""
    try:
        yield
    except Invalid as error:
        at = error.details.get("position")
        if expression is None or not isinstance(at, int) or not 0 <= at <= len(expression):
            raise
        from rich.cells import cell_len

        from duly.cli.text import clean

        before = " " * cell_len(clean(expression[:at]))
        error.message += f"\n  {clean(expression)}\n  {before}^"
        raise
