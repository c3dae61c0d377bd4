"""Pausing tasks and graphs, and letting them go on."""

import typer

from duly.cli.connect import connect, which_task
from duly.cli.each import OTHER, Each, TaskIds
from duly.cli.graph_wishes import GraphFlag, pause_whole, resume_whole
from duly.cli.output import Output, OutputFlag
from duly.client.shapes import Task


def pause(
    tasks: TaskIds = None, graph: GraphFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """Pause tasks or a graph: nothing of it starts until it is resumed; what runs goes on."""
    _check(tasks, graph)
    with connect() as client:
        if graph:
            pause_whole(client, graph, output)
        else:
            each = Each(client, tasks or [which_task(client, None)], output)
            each.do(client.pause_task, _paused)


def resume(
    tasks: TaskIds = None, graph: GraphFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """Let tasks or a graph go on that are paused."""
    _check(tasks, graph)
    with connect() as client:
        if graph:
            resume_whole(client, graph, output)
        else:
            each = Each(client, tasks or [which_task(client, None)], output)
            each.do(client.resume_task, lambda _: "{id} goes on: it is {status}")


def _check(tasks: list[str] | None, graph: str | None) -> None:
    if tasks and graph:
        raise typer.BadParameter("Give IDs or a graph, not both.", param_hint="ID")


def _paused(task: Task) -> str:
    if task["status"] == "running":
        return "{id} runs on; should it fail, it is tried again only when it is resumed"
    return "paused {id}" if task["status"] == "paused" else OTHER
