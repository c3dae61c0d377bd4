"""`duly usage`: shows usage and its price."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output.printing import Output, OutputFlag, print_csv, print_json, print_lines

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
        typer.Option(
            metavar="DAY", help="First day (UTC), or how long ago. [default: 30 days ago]"
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", help="Last day (UTC). [default: today]")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="KEYS",
            help="Group by, comma-separated: day, tenant, user, tier, urgency.",
        ),
    ] = "day",
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another tenant; needs the scope admin.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show usage and its price, by day, tenant, user, tier or urgency."""
    if output is Output.ID:
        raise typer.BadParameter(
            "usage has no IDs. Use table, json, jsonl or csv.", param_hint="--output"
        )
    names = [name.strip() for name in by.split(",")]
    with connect() as client:
        report = client.usage(since=since, until=until, by=names, tenant=tenant)
    match output:
        case Output.JSON:
            print_json(report)
        case Output.JSONL:
            print_lines(report["items"])
        case Output.CSV:
            print_csv(report["items"], COLUMNS)
        case _:
            from duly.cli.output.tables import print_usage

            print_usage(report, names)
