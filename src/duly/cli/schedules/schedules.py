"""The schedules: what is submitted again and again, and when."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from duly.cli import last
from duly.cli.bundle import add_bundle
from duly.cli.connect import connect, say
from duly.cli.main import TakesCommand
from duly.cli.output import Output, OutputFlag, print_items, print_value
from duly.cli.request import instant, require_payload
from duly.cli.schedule_file import FileFlag, explaining, submitted_by
from duly.cli.schedule_flags import (
    ScheduleFlags,
    WhenFlags,
    ahead,
    pointing,
    require_when,
    said_anything,
    schedule_fields,
    when_fields,
    with_schedule_flags,
    with_when_flags,
)
from duly.cli.submit import Command
from duly.cli.text import clean, now
from duly.client.schedule_shapes import FireTime, Schedule, ScheduleChanges
from duly.client.shapes import TaskFields
from duly.client.sync import Client
from duly.errors import NotFound

schedule = typer.Typer(
    name="schedule", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="The schedule.")]
LimitFlag = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")]
CursorFlag = Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on where a list ended.")]
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
)
HISTORY_COLUMNS = ("fire_at", "last_at", "times", "task", "graph", "scheduling_type", "reason")
EXAMPLE = "duly schedule create --daily 06:30 -- echo hello"
EXAMPLES = """\b
Examples:
  duly schedule create --name report --daily 06:30 --timezone Europe/Berlin -- /srv/report
  duly schedule create --every 15m --overlap skip --cap 10m --script ./sync.sh
  duly schedule create --cron '0 9 * * mon-fri' --tier regular -- /usr/bin/true
  duly schedule create --daily 02:00 --overlap queue -f nightly.yaml"""
RUNS = ("command", "source", "script_path")
SHOWN = 5
"""How many times, of the past and to come, `show` shows."""


@schedule.command(
    cls=TakesCommand, context_settings={"allow_interspersed_args": False}, epilog=EXAMPLES
)
@with_schedule_flags
def create(
    flags: ScheduleFlags,
    command: Command = None,
    file: FileFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Make a schedule of a task, or of what a file asks for, and say when it fires first."""
    said, task = schedule_fields(flags, command or [], now=now())
    require_when(said)
    manifest = None if file is None else submitted_by(file, said, task)
    if manifest is None:
        require_payload(task, EXAMPLE)
        said["task"] = task
    elif manifest.name is not None:
        said.setdefault("name", manifest.name)
    add_bundle(flags.bundle, task)
    with connect() as client, pointing(flags.cron), explaining(manifest):
        made = client.create_schedule(**said)
    if output is not Output.TABLE:
        print_value(made, output, COLUMNS)
        return
    from duly.cli.schedule_tables import say_made

    print(clean(say_made(made, now())))


@schedule.command("list")
def list_schedules(
    user: Annotated[str | None, typer.Option(metavar="USER", help="Those of this user.")] = None,
    due_before: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Due before 2027-01-31T06:30, or within 1h."),
    ] = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List schedules, newest first."""
    before = None if due_before is None else ahead("--due-before", due_before, now())
    with connect() as client:
        page = client.list_schedules(user=user, due_before=before, limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
    elif not page["items"]:
        print("No schedules.")
    else:
        from duly.cli.schedule_tables import draw_schedules

        draw_schedules(page["items"], now())
        say_more(page["next_cursor"])


@schedule.command()
def show(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Show a schedule, when it fires next, and what became of its last fire times."""
    with connect() as client:
        found = client.get_schedule(schedule)
        if output is not Output.TABLE:
            print_value(found, output, COLUMNS)
            return
        times = client.next_times(schedule, count=SHOWN)
        past, _ = read_history(client, schedule, SHOWN, None)
        statuses = read_statuses(client, schedule, past, SHOWN)
    from duly.cli.schedule_tables import draw_history, draw_times, schedule_details
    from duly.cli.tables import draw_pairs

    draw_pairs(schedule_details(found, now()))
    if times:
        print()
        draw_times(times, found["timezone"], now())
    if past:
        print()
        draw_history(past, statuses, found["timezone"])


@schedule.command()
def history(
    schedule: ScheduleId,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List what became of fire times, newest first: a task or graph, or why there is none."""
    with connect() as client:
        past, more = read_history(client, schedule, limit, cursor)
        if output is not Output.TABLE:
            print_items(_for_programs(past, output), more, output, HISTORY_COLUMNS)
            return
        zone = "UTC"
        # One that was removed has no zone any more, but still a history.
        with suppress(NotFound):
            zone = client.get_schedule(schedule)["timezone"]
        statuses = read_statuses(client, schedule, past, limit, cursor)
    if not past:
        print("It has not fired yet; `duly schedule next` says when it will.")
        return
    from duly.cli.schedule_tables import draw_history

    draw_history(past, statuses, zone)
    say_more(more)


@schedule.command("next")
@with_when_flags
def next_times(
    flags: WhenFlags,
    schedule: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The schedule; without it, say when as for `create`."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="So many times.")] = 10,
    after: Annotated[str | None, typer.Option(metavar="TIME", help="Those after.")] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Say when a schedule fires next, or when one would that is not stored."""
    since = None if after is None else ahead("--after", after, now())
    if (schedule is None) == (not said_anything(flags)):
        raise typer.BadParameter(
            "Give the ID of a schedule, or say when, such as --daily 06:30; one of them.",
            param_hint="ID",
        )
    with connect() as client, pointing(flags.cron):
        if schedule is None:
            said = when_fields(flags)
            require_when(said)
            times = client.preview_schedule(count=count, after=since, **said)
            zone = flags.timezone or "UTC"
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
            "--next-run", "--next-run-at", metavar="TIME", help="Move the next run alone: 2h."
        ),
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change a schedule; of its task, what is said replaces what was said, field by field.

    A file takes the place of all that it submitted so far.
    """
    said, task = schedule_fields(flags, command or [], now=now())
    manifest = None if file is None else submitted_by(file, said, task)
    changes: ScheduleChanges = {**said}  # type: ignore[typeddict-item] # next_run_at may be missing
    if next_run is not None:
        changes["next_run_at"] = ahead("--next-run", next_run, now())
    add_bundle(flags.bundle, task, needs_command=file is not None)
    if not changes and not task:
        raise typer.BadParameter("Say what to change, such as --daily 07:00.")
    with connect() as client, pointing(flags.cron), explaining(manifest):
        if manifest is None and task:
            changes.update(change_task(client.get_schedule(schedule)["task"], task))
        changed = client.update_schedule(schedule, **changes)
    print_changed("updated", changed, output)


@schedule.command()
def pause(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Let a schedule not fire until it is resumed; what it has submitted goes on."""
    with connect() as client:
        print_changed("paused", client.pause_schedule(schedule), output)


@schedule.command()
def resume(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Let a paused schedule fire again, from its next fire time on."""
    with connect() as client:
        print_changed("resumed", client.resume_schedule(schedule), output)


@schedule.command()
def run(schedule: ScheduleId, output: OutputFlag = Output.TABLE) -> None:
    """Submit the task or graph of a schedule now, beside its fire times, and print its id."""
    with connect() as client:
        made = client.run_schedule(schedule)
        ids: Mapping[str, str] = made.get("ids", {})  # type: ignore[assignment] # of a graph
        last.remember(client.endpoint.name, [made["id"], *ids.values()][-1])
    if output is not Output.TABLE:
        print_value(made, output)
    elif ids:
        print(f"submitted graph {made['id']}; to look at it: duly graph {made['id']}")
    else:
        print(f"submitted {made['id']}")


@schedule.command()
def backfill(
    schedule: ScheduleId,
    start: Annotated[str, typer.Option(metavar="TIME", help="From 2027-01-31T06:30 on.")],
    end: Annotated[str, typer.Option(metavar="TIME", help="Up to 2027-02-01T06:30, included.")],
    output: OutputFlag = Output.TABLE,
) -> None:
    """Submit what past fire times in a range have not led to, and print the ids."""
    start_at, end_at = instant("--start", start), instant("--end", end)
    with connect() as client:
        ids = client.backfill_schedule(schedule, start_at, end_at)
    if output is Output.JSON:
        print_value({"ids": ids}, output)
    elif output is not Output.TABLE:
        print_items([{"id": one} for one in ids], None, output, ("id",))
    elif ids:
        print("\n".join(f"submitted {one}" for one in ids))
    else:
        print("Nothing to make up for: it has no fire time in that range.")


@schedule.command()
def remove(schedule: ScheduleId) -> None:
    """Remove a schedule; what it has submitted goes on."""
    with connect() as client:
        client.remove_schedule(schedule)
    print(f"removed {schedule}")


def read_history(
    client: Client, schedule: str, limit: int, cursor: str | None
) -> tuple[list[FireTime], str | None]:
    """Return what became of fire times, and where the list goes on."""
    page = client.list_occurrences(schedule, limit=limit, cursor=cursor)
    return page["items"], page["next_cursor"]


def read_statuses(
    client: Client, schedule: str, past: list[FireTime], limit: int, cursor: str | None = None
) -> dict[str, str]:
    """Return where the tasks and graphs of those fire times are, as far as they are remembered."""
    statuses = {}
    if any(one["task"] for one in past):
        page = client.list_schedule_tasks(schedule, limit=limit, cursor=cursor)
        statuses = {task["id"]: task["status"] for task in page["items"]}
    for graph in (one["graph"] for one in past if one["graph"] is not None):
        with suppress(NotFound):
            statuses[graph] = client.get_graph(graph)["status"]
    return statuses


def change_task(old: dict[str, Any] | None, said: TaskFields) -> ScheduleChanges:
    """Return the change of what a schedule submits; the name alone is of the schedule, too."""
    if old is None and not said.keys() & set(RUNS):
        if said.keys() == {"name"}:
            return {}
        raise typer.BadParameter("It submits a graph; to change that, give the file with -f.")
    return {"task": merge(old or {}, said)}


def merge(old: dict[str, Any], new: TaskFields) -> TaskFields:
    """Return a task with fields replaced; another thing to run takes the place of the old one."""
    if any(name in new for name in RUNS):
        # A bundle goes with a command only; another command is run in the same one.
        gone = RUNS if "command" in new else (*RUNS, "artifact")
        old = {name: value for name, value in old.items() if name not in gone}
    return {**old, **new}  # type: ignore[typeddict-item] # the server told it as it takes it


def print_changed(verb: str, changed: Schedule, output: Output) -> None:
    """Print what a change made of a schedule."""
    if output is not Output.TABLE:
        print_value(changed, output, COLUMNS)
        return
    from duly.cli.schedule_tables import say_next, say_when

    after = "" if changed["paused"] else f"; fires next {say_next(changed, now())}"
    print(clean(f"{verb} {changed['id']}: {say_when(changed)}{after}"))


def print_times(times: list[str], zone: str, output: Output) -> None:
    """Print fire times; for programs, each of them is its own id."""
    if output is Output.JSON:
        print_value({"times": times}, output)
    elif output is Output.ID:
        print("\n".join(times))
    elif output is not Output.TABLE:
        print_items([{"time": one} for one in times], None, output, ("time",))
    elif not times:
        print("It fires no more.")
    else:
        from duly.cli.schedule_tables import draw_times

        draw_times(times, zone, now())


def say_more(cursor: str | None) -> None:
    """Say that there is more than was printed."""
    if cursor is not None:
        say(f"There are more: --cursor {cursor}")


def _for_programs(past: list[FireTime], output: Output) -> list[Mapping[str, Any]]:
    """Return fire times; by their ids those of their tasks or graphs are meant."""
    if output is Output.ID:
        return [{"id": made} for one in past if (made := one["task"] or one["graph"])]
    return [*past]
