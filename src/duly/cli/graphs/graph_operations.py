"""Graphs as a whole: cancelled, paused and resumed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from duly.cli.output import Output, print_value
from duly.client.graph_shapes import PausedGraph
from duly.client.sync import Client
from duly.errors import NotFound

GraphFlag = Annotated[str | None, typer.Option("--graph", metavar="ID", help="A whole graph.")]


def pause_whole(client: Client, graph: str, output: Output) -> None:
    """Pause a graph: none of its tasks starts until it is resumed; those that run go on."""
    with named(client, graph):
        paused = client.pause_graph(graph)
    say_counts(say_paused(paused, f" of {graph}"), paused, output)


def resume_whole(client: Client, graph: str, output: Output) -> None:
    """Resume a graph that is paused."""
    with named(client, graph):
        count = client.resume_graph(graph)
    say_counts(f"resumed {_tasks(count)} of {graph}", {"resumed": count}, output)


def cancel_whole(client: Client, graph: str, output: Output) -> None:
    """Cancel all tasks of a graph that have not ended."""
    with named(client, graph):
        count = client.cancel_graph(graph)
    say_counts(f"cancelled {_tasks(count)} of {graph}", {"cancelled": count}, output)


@contextmanager
def named(client: Client, graph: str) -> Iterator[None]:
    """Say of which graph a task is, to whoever gave its id for one."""
    try:
        yield
    except NotFound:
        whole = None
        with suppress(NotFound):
            whole = client.get_task(graph)["graph"]
        if whole is None:
            raise
        raise NotFound(f"{graph} is a task, of graph {whole}.") from None


def say_paused(paused: PausedGraph, of: str = "") -> str:
    """Return in words how many were paused, and how many run on."""
    said = f"paused {_tasks(paused['paused'])}{of}"
    if paused["running"]:
        runs = "1 runs" if paused["running"] == 1 else f"{paused['running']} run"
        said += f"; {runs} on to the end"
    return said


def say_counts(said: str, counts: Mapping[str, object], output: Output) -> None:
    """Print how many it were, in words or for a program."""
    if output is Output.TABLE:
        print(said)
    elif output is not Output.ID:
        print_value(dict(counts), output)


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
