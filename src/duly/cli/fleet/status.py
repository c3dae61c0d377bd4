"""The whole of Duly at a glance."""

import typer

from duly.cli.connect import connect
from duly.cli.details import status_details
from duly.cli.output import Output, OutputFlag, print_json, print_lines


def status(output: OutputFlag = Output.TABLE) -> None:
    """Show the whole at a glance: tasks, nodes, what is free."""
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter("The status is no list; try json.", param_hint="--output")
    with connect() as client:
        found = client.status()
        url = client.endpoint.name
    if output is Output.JSON:
        print_json(found)
    elif output is Output.JSONL:
        print_lines([found])
    else:
        from duly.cli.tables import draw_pairs

        draw_pairs(status_details(found, url))
