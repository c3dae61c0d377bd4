"""`duly pause` and `duly resume`."""

import typer

from duly.cli.connect import connect, task_or_last
from duly.cli.graphs.graph_operations import (
    GraphFlag,
    describe_paused,
    pause_graph,
    print_counts,
    resume_graph,
)
from duly.cli.output.printing import Output, OutputFlag
from duly.cli.tasks.for_each_task import UNCHANGED, ForEachTask, TaskIds
from duly.cli.tasks.tasks import (
    LabelFlag,
    NameFlag,
    OtherTenantFlag,
    SinceFlag,
    StatusFlag,
    task_filter,
)
from duly.client.shapes.task_shapes import Task, TaskFilter
from duly.model.wording import count_of


def pause(
    tasks: TaskIds = None,
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    tenant: OtherTenantFlag = None,
    graph: GraphFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Pause tasks or a graph. Running attempts finish; nothing else starts until resumed."""
    filters = task_filter(status, name, label, since, tenant=tenant)
    _check(tasks, filters, graph)
    with connect() as client:
        if graph:
            pause_graph(client, graph, output)
        elif filters:
            paused = client.pause_tasks(**filters)
            print_counts(describe_paused(paused), paused, output)
        else:
            for_each = ForEachTask(client, tasks or [task_or_last(client, None)], output)
            for_each.do(client.pause_task, _paused)


def resume(
    tasks: TaskIds = None,
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    tenant: OtherTenantFlag = None,
    graph: GraphFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Resume paused tasks or a paused graph."""
    filters = task_filter(status, name, label, since, tenant=tenant)
    _check(tasks, filters, graph)
    with connect() as client:
        if graph:
            resume_graph(client, graph, output)
        elif filters:
            count = client.resume_tasks(**filters)
            print_counts(f"{count_of(count, 'task')} resumed.", {"resumed": count}, output)
        else:
            for_each = ForEachTask(client, tasks or [task_or_last(client, None)], output)
            for_each.do(client.resume_task, lambda _: "Task {id} resumed; it is {status}.")


def _check(tasks: list[str] | None, filters: TaskFilter, graph: str | None) -> None:
    if bool(filters) + bool(tasks) + bool(graph) > 1:
        raise typer.BadParameter("Give only one of task IDs, a filter and --graph.")


def _paused(task: Task) -> str:
    if task["status"] == "running":
        return "Task {id} keeps running. If it fails, it is retried only after it is resumed."
    return "Task {id} paused." if task["status"] == "paused" else UNCHANGED
