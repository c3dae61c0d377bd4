"""What was used, and what it costs."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag, print_csv, print_json, print_lines

COLUMNS = (
    "day",
    "tenant",
    "user",
    "tier",
    "urgency",
    "tasks",
    "attempts",
    "cpu_seconds",
    "granted_cpu_seconds",
    "granted_memory_mb_seconds",
    "price",
)


def usage(
    since: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="The first day (UTC), or how long ago; 30 days ago."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", help="The last day (UTC); today if not said.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="KEYS",
            help="What to tell apart, with commas: day, tenant, user, tier, urgency.",
        ),
    ] = "day",
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another tenant, for administrators.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Tell what was used on which days, and what it costs."""
    if output is Output.ID:
        raise typer.BadParameter("Usage has no ids; take table, json, jsonl or csv.")
    names = [name.strip() for name in by.split(",")]
    with connect() as client:
        told = client.usage(since=since, until=until, by=names, tenant=tenant)
    match output:
        case Output.JSON:
            print_json(told)
        case Output.JSONL:
            print_lines(told["items"])
        case Output.CSV:
            print_csv(told["items"], COLUMNS)
        case _:
            from duly.cli.tables import draw_usage

            draw_usage(told, names)
