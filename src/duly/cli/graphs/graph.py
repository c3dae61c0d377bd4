"""`duly graph`: what waits for what, drawn in the terminal or for other programs."""

from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer

from duly.cli.connect import connect, say, which_task
from duly.cli.output import print_json
from duly.cli.text import clean
from duly.client.graph_shapes import Graph, TaskGraph
from duly.client.sync import Client
from duly.errors import NotFound


class GraphOutput(StrEnum):
    """The forms of a graph."""

    TABLE = "table"
    JSON = "json"
    DOT = "dot"
    MERMAID = "mermaid"
    SVG = "svg"


def graph(
    id_: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A graph, or a task: then what is around it. If left out, the graph or the task "
            "last submitted from here.",
        ),
    ] = None,
    output: Annotated[
        GraphOutput,
        typer.Option("--output", "-o", help="How to print it; json is what the API answered."),
    ] = GraphOutput.TABLE,
) -> None:
    """Draw a graph, or what a task waits for and what waits for it."""
    with connect() as client:
        found, title, marked = _find(client, id_)
    if output is GraphOutput.JSON:
        print_json(found)
        return
    parts = found["tasks"]
    if output is GraphOutput.TABLE:
        from duly.cli.graph_tree import draw_graph

        draw_graph(title, parts, marked=marked)
    elif output is GraphOutput.SVG:
        from duly.cli.graph_svg import as_svg

        print("\n".join(as_svg(parts, title)))
    else:
        from duly.cli.graph_text import as_dot, as_mermaid

        print("\n".join((as_dot if output is GraphOutput.DOT else as_mermaid)(parts)))
    if found["more"]:
        say("There are more tasks than are told here.")


def _find(client: Client, id_: str | None) -> tuple[Graph | TaskGraph, str, str | None]:
    """Return the graph of that id, or what is around that task; its title; the task to mark."""
    if id_ is not None:
        with suppress(NotFound):
            whole = client.get_graph(id_)
            return whole, _title_of_graph(whole), None
    wanted = which_task(client, id_)
    try:
        around = client.get_task_graph(wanted)
    except NotFound:
        raise NotFound(f"There is no graph and no task {wanted[:60]}.") from None
    if id_ is None and around["graph"] is not None:
        whole = client.get_graph(around["graph"])
        return whole, _title_of_graph(whole), None
    return around, _title_around(around), around["id"]


def _title_of_graph(found: Graph) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in found["counts"].items())
    named = f"{found['name']} " if found["name"] else ""
    return clean(f"{named}{found['id']}: {found['status']} ({counts})")


def _title_around(found: TaskGraph) -> str:
    among = f", of graph {found['graph']}" if found["graph"] else ""
    others = len(found["tasks"]) - 1
    around = f"{others} other{'' if others == 1 else 's'} around it" if others else "stands alone"
    return clean(f"task {found['id']}{among}: {around}")
