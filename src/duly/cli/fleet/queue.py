"""Manage queues: in which order, when and how many tasks start."""

from typing import Annotated

import typer

from duly.cli.confirm import YesFlag, confirm
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean
from duly.cli.tasks.tasks import TenantFlag
from duly.client.shapes.queue_shapes import Queue, QueueBounds

queue = typer.Typer(
    name="queue", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]
ShareFlag = Annotated[
    str | None,
    typer.Option(metavar="PERCENT", help="Most that its running tasks may hold of the fleet: 30%."),
]
HoursFlag = Annotated[
    str | None,
    typer.Option(metavar="FROM-TO", help="When its tasks may start each day: 22:00-06:00."),
]
TimezoneFlag = Annotated[
    str | None, typer.Option(metavar="ZONE", help="Time zone of --hours. [default: UTC]")
]
LEVEL_HELP = "From 1 to 99; lower is served first. periodic has 20, delayable 30, off_peak 40."
COLUMNS = (
    "name",
    "level",
    "off_peak",
    "max_share",
    "hours",
    "paused",
    "waiting",
    "oldest_wait",
    "in_per_minute",
    "out_per_minute",
)


@queue.command()
def create(
    name: QueueName,
    level: Annotated[int, typer.Option(metavar="N", help=LEVEL_HELP)],
    off_peak: Annotated[
        bool, typer.Option("--off-peak", help="Its tasks wait for low load, like off_peak.")
    ] = False,
    max_share: ShareFlag = None,
    hours: HoursFlag = None,
    timezone: TimezoneFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Create a queue, for tasks that ask for it with --queue NAME."""
    bounds = _bounds(max_share, hours, timezone)
    with connect() as client:
        print_queue(client.create_queue(name, level, off_peak=off_peak, **bounds), output)


@queue.command("list")
def list_queues(
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the queues in the order in which they are served, and what waits in each."""
    with connect() as client:
        page = client.list_queues(tenant=tenant, limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        items = [with_id(item, output) for item in page["items"]]
        print_items(items, page["next_cursor"], output, COLUMNS)
        return
    from duly.cli.fleet.queue_tables import print_queues

    print_queues(page["items"])
    print_next_cursor(page["next_cursor"])


@queue.command()
def show(name: QueueName, tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show a queue."""
    with connect() as client:
        print_queue(client.get_queue(name, tenant=tenant), output)


@queue.command()
def update(
    name: QueueName,
    level: Annotated[int | None, typer.Option(metavar="N", help=LEVEL_HELP)] = None,
    max_share: ShareFlag = None,
    hours: HoursFlag = None,
    timezone: TimezoneFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change the level or the bounds of a queue; the value none removes a bound."""
    bounds = _bounds(max_share, hours, timezone)
    if level is None and not bounds:
        raise typer.BadParameter(
            "There is nothing to change. Give a flag, such as --max-share 30%."
        )
    with connect() as client:
        if level is None:
            shown = client.update_queue(name, **bounds)
        else:
            shown = client.update_queue(name, level=level, **bounds)
        print_queue(shown, output)


@queue.command()
def pause(name: QueueName, output: OutputFlag = Output.TABLE) -> None:
    """Pause a queue: none of its tasks start until it is resumed. Running attempts go on."""
    with connect() as client:
        print_queue(client.pause_queue(name), output)


@queue.command()
def resume(name: QueueName, output: OutputFlag = Output.TABLE) -> None:
    """Resume a paused queue."""
    with connect() as client:
        print_queue(client.resume_queue(name), output)


@queue.command()
def remove(name: QueueName, yes: YesFlag = False) -> None:
    """Remove a queue without live tasks that no plan includes."""
    with connect() as client:
        shown = client.get_queue(name)
        confirm(f"Remove the queue {shown['name']} for good?", yes=yes)
        client.remove_queue(name)
    print(clean(f"Queue {shown['name']} removed."))


def _bounds(max_share: str | None, hours: str | None, timezone: str | None) -> QueueBounds:
    """Return the flags that were given; `none` removes a bound."""
    fields: QueueBounds = {}
    if max_share is not None:
        fields["max_share"] = None if max_share == "none" else max_share
    if hours is not None:
        fields["hours"] = None if hours == "none" else hours
    if timezone is not None:
        fields["timezone"] = timezone
    return fields


def print_queue(shown: Queue, output: Output) -> None:
    """Print a queue."""
    if output is not Output.TABLE:
        print_value(with_id(shown, output), output, COLUMNS)
        return
    from duly.cli.fleet.queue_tables import queue_details
    from duly.cli.output.tables import print_pairs

    print_pairs(queue_details(shown))


def with_id(shown: Queue, output: Output) -> dict[str, object]:
    """Return a queue for machine-readable output; its name serves as the id."""
    return {"id": shown["name"], **shown} if output is Output.ID else {**shown}
