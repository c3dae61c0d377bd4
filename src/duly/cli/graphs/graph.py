"""`duly graph`: draws a graph in the terminal, or as DOT, Mermaid or SVG."""

from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer

from duly.cli.connect import connect, print_notice
from duly.cli.output.printing import print_json
from duly.cli.output.text import clean
from duly.cli.tasks.find_task import task_to_read
from duly.client.shapes.graph_shapes import Graph, TaskGraph
from duly.client.sync import Client
from duly.errors import NotFound

GIVE_ID = "Give the ID of a graph, or a task ID from 'duly list'."


class GraphOutput(StrEnum):
    """The output formats of a graph."""

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
            help="A graph, or a task to show with its upstream and downstream tasks, by ID or "
            "name. [default: the graph or task last submitted from here]",
        ),
    ] = None,
    output: Annotated[
        GraphOutput,
        typer.Option("--output", "-o", help="Output format; json is the API's response."),
    ] = GraphOutput.TABLE,
) -> None:
    """Draw a graph, or the upstream and downstream tasks of a task."""
    with connect() as client:
        found, title, marked = _find_graph(client, id_)
    if output is GraphOutput.JSON:
        print_json(found)
        return
    tasks = found["tasks"]
    if output is GraphOutput.TABLE:
        from duly.cli.graphs.graph_tree import print_graph

        print_graph(title, tasks, marked=marked)
    elif output is GraphOutput.SVG:
        from duly.cli.graphs.graph_svg import as_svg

        print("\n".join(as_svg(tasks, title)))
    else:
        from duly.cli.graphs.graph_text import as_dot, as_mermaid

        print("\n".join((as_dot if output is GraphOutput.DOT else as_mermaid)(tasks)))
    if found["more"]:
        print_notice("There are more tasks than are shown here. List them with: duly list")


def _find_graph(client: Client, id_: str | None) -> tuple[Graph | TaskGraph, str, str | None]:
    """Return a graph, or the neighbourhood of a task; its title; and the task to mark."""
    if id_ is not None:
        with suppress(NotFound):
            whole = client.get_graph(id_)
            return whole, _graph_title(whole), None
    try:
        task_id = task_to_read(client, id_)
    except NotFound:
        if id_ is None:
            raise
        raise NotFound(f"There is no graph or task {id_[:60]!r}. {GIVE_ID}") from None
    try:
        neighbourhood = client.get_task_graph(task_id)
    except NotFound:
        raise NotFound(f"There is no graph or task {task_id[:60]!r}. {GIVE_ID}") from None
    if id_ is None and neighbourhood["graph"] is not None:
        whole = client.get_graph(neighbourhood["graph"])
        return whole, _graph_title(whole), None
    return neighbourhood, _neighbourhood_title(neighbourhood), neighbourhood["id"]


def _graph_title(found: Graph) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in found["counts"].items())
    named = f"{found['name']} " if found["name"] else ""
    return clean(f"{named}{found['id']}: {found['status']} ({counts})")


def _neighbourhood_title(found: TaskGraph) -> str:
    among = f", of graph {found['graph']}" if found["graph"] else ""
    others = len(found["tasks"]) - 1
    neighbourhood = (
        f"{others} other{'' if others == 1 else 's'} around it" if others else "stands alone"
    )
    return clean(f"task {found['id']}{among}: {neighbourhood}")
