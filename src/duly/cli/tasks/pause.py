"""Pausing tasks and graphs, and letting them go on."""

import typer

from duly.cli.connect import connect, which_task
from duly.cli.each import OTHER, Each, TaskIds
from duly.cli.graph_wishes import GraphFlag, pause_whole, resume_whole, say_counts, say_paused
from duly.cli.output import Output, OutputFlag
from duly.cli.tasks import LabelFlag, NameFlag, SinceFlag, StatusFlag, task_filter
from duly.client.shapes import Task, TaskFilter


def pause(
    tasks: TaskIds = None,
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    graph: GraphFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Pause tasks or a graph: nothing of it starts until it is resumed; what runs goes on."""
    which = task_filter(status, name, label, since)
    _check(tasks, which, graph)
    with connect() as client:
        if graph:
            pause_whole(client, graph, output)
        elif which:
            paused = client.pause_tasks(**which)
            say_counts(say_paused(paused), paused, output)
        else:
            each = Each(client, tasks or [which_task(client, None)], output)
            each.do(client.pause_task, _paused)


def resume(
    tasks: TaskIds = None,
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    graph: GraphFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Let tasks or a graph go on that are paused."""
    which = task_filter(status, name, label, since)
    _check(tasks, which, graph)
    with connect() as client:
        if graph:
            resume_whole(client, graph, output)
        elif which:
            count = client.resume_tasks(**which)
            said = f"resumed {count} {'task' if count == 1 else 'tasks'}"
            say_counts(said, {"resumed": count}, output)
        else:
            each = Each(client, tasks or [which_task(client, None)], output)
            each.do(client.resume_task, lambda _: "{id} goes on: it is {status}")


def _check(tasks: list[str] | None, which: TaskFilter, graph: str | None) -> None:
    if bool(which) + bool(tasks) + bool(graph) > 1:
        raise typer.BadParameter("Give IDs, a filter or a graph, not several.", param_hint="ID")


def _paused(task: Task) -> str:
    if task["status"] == "running":
        return "{id} runs on; should it fail, it is tried again only when it is resumed"
    return "paused {id}" if task["status"] == "paused" else OTHER
