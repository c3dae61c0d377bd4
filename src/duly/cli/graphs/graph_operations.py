"""Cancels, pauses and resumes whole graphs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from duly.cli.output.printing import Output, print_value
from duly.client.shapes.graph_shapes import PauseCounts
from duly.client.sync import Client
from duly.errors import NotFound
from duly.model.wording import count_of

GraphFlag = Annotated[
    str | None,
    typer.Option("--graph", metavar="ID", help="All tasks of this graph, by its ID or name."),
]


def pause_graph(client: Client, graph: str, output: Output) -> None:
    """Pause a graph, and print how many of its tasks were paused."""
    with naming_graph_of_task(client, graph):
        paused = client.pause_graph(graph)
    print_counts(describe_paused(paused, f" of graph {graph}"), paused, output)


def resume_graph(client: Client, graph: str, output: Output) -> None:
    """Resume a paused graph, and print how many of its tasks were resumed."""
    with naming_graph_of_task(client, graph):
        count = client.resume_graph(graph)
    print_counts(_describe(count, graph, "resumed"), {"resumed": count}, output)


def cancel_graph(client: Client, graph: str, output: Output) -> None:
    """Cancel the live tasks of a graph, and print how many."""
    with naming_graph_of_task(client, graph):
        count = client.cancel_graph(graph)
    print_counts(_describe(count, graph, "cancelled"), {"cancelled": count}, output)


@contextmanager
def naming_graph_of_task(client: Client, graph: str) -> Iterator[None]:
    """If a task's id was given instead of a graph's, name the graph in the error."""
    try:
        yield
    except NotFound:
        whole = None
        with suppress(NotFound):
            whole = client.get_task(graph)["graph"]
        if whole is None:
            raise
        raise NotFound(f"{graph} is a task of graph {whole}. Give the ID of the graph.") from None


def describe_paused(paused: PauseCounts, of: str = "") -> str:
    """Return a sentence with how many tasks were paused and how many keep running."""
    sentence = f"{count_of(paused['paused'], 'task')}{of} paused"
    if paused["running"]:
        runs = "1 keeps" if paused["running"] == 1 else f"{paused['running']} keep"
        sentence += f"; {runs} running"
    return f"{sentence}."


def print_counts(sentence: str, counts: Mapping[str, object], output: Output) -> None:
    """Print a count as a sentence, or in a machine-readable format."""
    if output is Output.TABLE:
        print(sentence)
    elif output is not Output.ID:
        print_value(dict(counts), output)


def _describe(count: int, graph: str, verb: str) -> str:
    return f"{count_of(count, 'task')} of graph {graph} {verb}."
