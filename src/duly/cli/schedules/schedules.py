"""Manage schedules: tasks and graphs that are submitted repeatedly."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from duly.cli import last_task
from duly.cli.completion import complete_schedule
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean, now
from duly.cli.schedules.named_schedule import TakesNameAndCommand
from duly.cli.schedules.schedule_file import FileFlag, apply_manifest, locating_errors
from duly.cli.schedules.schedule_flags import (
    ScheduleFlags,
    WhenFlags,
    add_local_timezone,
    has_any_flag,
    marking_cron_errors,
    parse_future,
    require_when,
    schedule_fields,
    when_fields,
    with_schedule_flags,
    with_when_flags,
)
from duly.cli.tasks.submission.bundle import add_bundle
from duly.cli.tasks.submission.request import require_payload
from duly.cli.tasks.submission.submit import Command
from duly.cli.tasks.times import parse_instant
from duly.client.shapes.schedule_shapes import Occurrence, Schedule, ScheduleChanges
from duly.client.shapes.task_shapes import TaskFields
from duly.client.sync import Client
from duly.errors import NotFound

schedule = typer.Typer(
    name="schedule", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

ScheduleId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The schedule's ID or name.", autocompletion=complete_schedule
    ),
]
COLUMNS = (
    "id",
    "name",
    "run_at",
    "daily",
    "weekly",
    "monthly",
    "annually",
    "every",
    "cron",
    "timezone",
    "next_run_at",
    "paused",
    "overlap",
    "misfire",
    "user",
    "tenant",
)
HISTORY_COLUMNS = ("fire_at", "last_at", "times", "task", "graph", "scheduling_type", "reason")
EXAMPLE = "duly schedule create --daily 06:30 -- echo hello"
EXAMPLES = """\b
Examples:
  duly schedule create report --daily 06:30 --timezone Europe/Berlin -- /srv/report
  duly schedule create --every 15m --overlap skip --cap 10m --script ./sync.sh
  duly schedule create --cron '0 9 * * mon-fri' --tier regular -- /usr/bin/true
  duly schedule create --daily 02:00 --overlap queue -f nightly.yaml"""
NO_SCHEDULES = f"No schedules yet. Create one: {EXAMPLE}"
PAYLOAD_FIELDS = ("command", "source", "script_path", "call")
SHOWN_TIMES = 5
"""How many past and how many future fire times `show` prints."""


@schedule.command(
    cls=TakesNameAndCommand, context_settings={"allow_interspersed_args": False}, epilog=EXAMPLES
)
@with_schedule_flags
def create(
    flags: ScheduleFlags,
    command: Command = None,
    file: FileFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Create a schedule of a task or a manifest, and print its first fire time."""
    fields, task = schedule_fields(flags, command or [], now=now())
    require_when(fields)
    add_local_timezone(fields)
    manifest = None if file is None else apply_manifest(file, fields, task)
    if manifest is None:
        require_payload(task, EXAMPLE)
        fields["task"] = task
    elif manifest.name is not None:
        fields.setdefault("name", manifest.name)
    add_bundle(flags.bundle, task)
    with connect() as client, marking_cron_errors(flags.cron), locating_errors(manifest):
        created = client.create_schedule(**fields)
    if output is not Output.TABLE:
        print_value(created, output, COLUMNS)
        return
    from duly.cli.schedules.schedule_tables import describe_created

    print(clean(describe_created(created, now())))


@schedule.command("list")
def list_schedules(
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Only those of this user.")
    ] = None,
    due_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only those due before a time, or within a duration such as 1h."
        ),
    ] = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List schedules, newest first."""
    before = None if due_before is None else parse_future("--due-before", due_before, now())
    with connect() as client:
        page = client.list_schedules(user=user, due_before=before, limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
    elif not page["items"]:
        print("No schedules." if user or due_before else NO_SCHEDULES)
    else:
        from duly.cli.schedules.schedule_tables import print_schedules

        print_schedules(page["items"], now())
        print_next_cursor(page["next_cursor"])


@schedule.command()
def show(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Show a schedule with its next and last fire times."""
    with connect() as client:
        shown = client.get_schedule(schedule)
        if output is not Output.TABLE:
            print_value(shown, output, COLUMNS)
            return
        times = client.next_times(schedule, count=SHOWN_TIMES)
        past, _ = list_past(client, schedule, SHOWN_TIMES, None)
        statuses = read_statuses(client, schedule, past, SHOWN_TIMES)
    from duly.cli.output.tables import print_pairs
    from duly.cli.schedules.schedule_tables import (
        print_fire_times,
        print_occurrences,
        schedule_details,
    )

    print_pairs(schedule_details(shown, now()))
    if times:
        print()
        print_fire_times(times, shown["timezone"], now())
    if past:
        print()
        print_occurrences(past, statuses, shown["timezone"])


@schedule.command()
def history(
    schedule: ScheduleId,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List past occurrences, newest first: the task or graph, or why there is none."""
    with connect() as client:
        past, more = list_past(client, schedule, limit, cursor)
        if output is not Output.TABLE:
            print_items(_with_ids(past, output), more, output, HISTORY_COLUMNS)
            return
        zone = "UTC"
        # A removed schedule has no timezone any more, but still a history.
        with suppress(NotFound):
            zone = client.get_schedule(schedule)["timezone"]
        statuses = read_statuses(client, schedule, past, limit, cursor)
    if not past:
        print(f"It has not fired yet. See when it will with: duly schedule next {schedule}")
        return
    from duly.cli.schedules.schedule_tables import print_occurrences

    print_occurrences(past, statuses, zone)
    print_next_cursor(more)


@schedule.command("next")
@with_when_flags
def next_times(
    flags: WhenFlags,
    schedule: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="The schedule's ID or name; or else a recurrence, such as --daily 06:30.",
            autocompletion=complete_schedule,
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Number of fire times.")
    ] = 10,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only fire times after this.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show the next fire times of a schedule, or of a recurrence without storing it."""
    since = None if after is None else parse_future("--after", after, now())
    if (schedule is None) == (not has_any_flag(flags)):
        raise typer.BadParameter(
            "Give either the ID of a schedule, or a recurrence such as --daily 06:30."
        )
    with connect() as client, marking_cron_errors(flags.cron):
        if schedule is None:
            fields = when_fields(flags)
            require_when(fields)
            add_local_timezone(fields)
            times = client.preview_schedule(count=count, after=since, **fields)
            zone = fields.get("timezone") or "UTC"
        else:
            times = client.next_times(schedule, count=count, after=since)
            zone = client.get_schedule(schedule)["timezone"] if output is Output.TABLE else ""
    print_times(times, zone, output)


@schedule.command()
@with_schedule_flags
def update(
    flags: ScheduleFlags,
    schedule: ScheduleId,
    command: Command = None,
    file: FileFlag = None,
    next_run: Annotated[
        str | None,
        typer.Option(
            "--next-run",
            "--next-run-at",
            metavar="TIME",
            help="Move only the next run: a time, or 2h from now.",
        ),
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Update a schedule; flags of the task replace its fields one by one.

    A manifest replaces the whole task or graph.
    """
    fields, task = schedule_fields(flags, command or [], now=now())
    manifest = None if file is None else apply_manifest(file, fields, task)
    changes: ScheduleChanges = {**fields}  # type: ignore[typeddict-item] # next_run_at may be missing
    if next_run is not None:
        changes["next_run_at"] = parse_future("--next-run", next_run, now())
    add_bundle(flags.bundle, task, needs_command=file is not None)
    if not changes and not task:
        raise typer.BadParameter("There is nothing to change. Give a flag, such as --daily 07:00.")
    with connect() as client, marking_cron_errors(flags.cron), locating_errors(manifest):
        if manifest is None and task:
            changes.update(change_task(client.get_schedule(schedule)["task"], task))
        changed = client.update_schedule(schedule, **changes)
    print_changed("updated", changed, output)


@schedule.command()
def pause(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Pause a schedule: it does not fire until it is resumed."""
    with connect() as client:
        print_changed("paused", client.pause_schedule(schedule), output)


@schedule.command()
def resume(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Resume a paused schedule, from its next fire time on."""
    with connect() as client:
        print_changed("resumed", client.resume_schedule(schedule), output)


@schedule.command()
def run(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Submit the task or graph of a schedule now, in addition to its fire times."""
    with connect() as client:
        created = client.run_schedule(schedule)
        ids: Mapping[str, str] = created.get("ids", {})  # type: ignore[assignment] # of a graph
        last_task.remember(client.endpoint, [created["id"], *ids.values()][-1])
    if output is not Output.TABLE:
        print_value(created, output)
    elif ids:
        print(f"Graph {created['id']} submitted. Show it with: duly graph {created['id']}")
    else:
        print(f"Task {created['id']} submitted.")


@schedule.command()
def backfill(
    schedule: ScheduleId,
    start: Annotated[
        str, typer.Option(metavar="TIME", help="Start of the range, such as 2027-01-31T06:30.")
    ],
    end: Annotated[str, typer.Option(metavar="TIME", help="End of the range, inclusive.")],
    output: OutputFlag = Output.TABLE,
) -> None:
    """Submit the occurrences missing in a past range, and print their IDs."""
    start_at, end_at = parse_instant("--start", start), parse_instant("--end", end)
    with connect() as client:
        ids = client.backfill_schedule(schedule, start_at, end_at)
    if output is Output.JSON:
        print_value({"ids": ids}, output)
    elif output is not Output.TABLE:
        print_items([{"id": item} for item in ids], None, output, ("id",))
    elif ids:
        print("\n".join(f"Task {item} submitted." for item in ids))
    else:
        print("There is nothing to backfill: no fire time is in that range.")


@schedule.command()
def remove(schedule: ScheduleId) -> None:
    """Remove a schedule; tasks that it has submitted are not affected."""
    with connect() as client:
        client.remove_schedule(schedule)
    print(clean(f"Schedule {schedule} removed."))


def list_past(
    client: Client, schedule: str, limit: int, cursor: str | None
) -> tuple[list[Occurrence], str | None]:
    """Return a page of past occurrences and the next cursor."""
    page = client.list_occurrences(schedule, limit=limit, cursor=cursor)
    return page["items"], page["next_cursor"]


def read_statuses(
    client: Client, schedule: str, past: list[Occurrence], limit: int, cursor: str | None = None
) -> dict[str, str]:
    """Return the statuses of the occurrences' tasks and graphs that are still stored."""
    statuses = {}
    if any(item["task"] for item in past):
        page = client.list_schedule_tasks(schedule, limit=limit, cursor=cursor)
        statuses = {task["id"]: task["status"] for task in page["items"]}
    for graph in (item["graph"] for item in past if item["graph"] is not None):
        with suppress(NotFound):
            statuses[graph] = client.get_graph(graph)["status"]
    return statuses


def change_task(old: dict[str, Any] | None, fields: TaskFields) -> ScheduleChanges:
    """Return the update of a schedule's task; a name alone changes only the schedule."""
    if old is None and not fields.keys() & set(PAYLOAD_FIELDS):
        if fields.keys() == {"name"}:
            return {}
        raise typer.BadParameter(
            "This schedule submits a graph. To change it, give a manifest with -f FILE."
        )
    return {"task": merge_task_fields(old or {}, fields)}


def merge_task_fields(old: dict[str, Any], new: TaskFields) -> TaskFields:
    """Return a task with fields replaced; a new payload replaces the old one."""
    if any(name in new for name in PAYLOAD_FIELDS):
        # Only commands have a bundle; a new command runs in the same bundle.
        gone = PAYLOAD_FIELDS if "command" in new else (*PAYLOAD_FIELDS, "artifact")
        old = {name: value for name, value in old.items() if name not in gone}
    return {**old, **new}  # type: ignore[typeddict-item] # the server told it as it takes it


def print_changed(verb: str, changed: Schedule, output: Output) -> None:
    """Print a schedule after a change."""
    if output is not Output.TABLE:
        print_value(changed, output, COLUMNS)
        return
    from duly.cli.schedules.schedule_tables import describe_next_run, format_recurrence

    after = "" if changed["paused"] else f" {describe_next_run(changed, now())}"
    print(clean(f"Schedule {changed['id']} {verb}: {format_recurrence(changed)}.{after}"))


def print_times(times: list[str], zone: str, output: Output) -> None:
    """Print fire times; with --output id, the times themselves."""
    if output is Output.JSON:
        print_value({"times": times}, output)
    elif output is Output.ID:
        print("\n".join(times))
    elif output is not Output.TABLE:
        print_items([{"time": item} for item in times], None, output, ("time",))
    elif not times:
        print("It does not fire again.")
    else:
        from duly.cli.schedules.schedule_tables import print_fire_times

        print_fire_times(times, zone, now())


def _with_ids(past: list[Occurrence], output: Output) -> list[Mapping[str, Any]]:
    """Return the occurrences; with --output id, the ids of their tasks or graphs."""
    if output is Output.ID:
        return [{"id": created} for item in past if (created := item["task"] or item["graph"])]
    return [*past]
