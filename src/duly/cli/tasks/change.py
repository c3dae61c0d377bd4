"""`duly cancel`, `update` and `replay`."""

import shlex
from typing import Annotated

import typer

from duly.cli import last_task
from duly.cli.confirm import YesFlag, ask, can_ask, confirm
from duly.cli.connect import connect, print_notice, task_or_last
from duly.cli.graphs.graph_operations import GraphFlag, cancel_graph
from duly.cli.output.printing import Output, OutputFlag, print_value
from duly.cli.output.text import now
from duly.cli.tasks.flags import TaskFlags, with_task_flags
from duly.cli.tasks.for_each_task import UNCHANGED, ForEachTask, TaskIds
from duly.cli.tasks.submission.bundle import add_bundle
from duly.cli.tasks.submission.request import task_fields
from duly.cli.tasks.submission.surprises import tell_if_past
from duly.cli.tasks.tasks import (
    LabelFlag,
    NameFlag,
    OtherTenantFlag,
    SinceFlag,
    StatusFlag,
    TaskId,
    task_filter,
)
from duly.client.shapes.task_shapes import Task, TaskFilter
from duly.client.sync import Client
from duly.model.call_text import format_call
from duly.model.wording import count_of

DownstreamFlag = Annotated[
    bool,
    typer.Option(
        "--downstream", help="Replay also the tasks that were cancelled because it failed."
    ),
]
CANCELLED = {
    "cancelled": "Task {id} cancelled.",
    "running": "Task {id} is being cancelled: its processes are being stopped.",
}


def cancel(
    tasks: TaskIds = None,
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    tenant: OtherTenantFlag = None,
    graph: GraphFlag = None,
    yes: YesFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Cancel tasks. Waiting tasks never start; running tasks are stopped."""
    filters = task_filter(status, name, label, since, tenant=tenant)
    if bool(filters) + bool(tasks) + bool(graph) > 1:
        raise typer.BadParameter("Give only one of task IDs, a filter and --graph.")
    with connect() as client:
        if graph:
            cancel_graph(client, graph, output)
        elif filters:
            cancel_by_filter(client, filters, output, yes=yes)
        else:
            for_each = ForEachTask(client, tasks or [confirmed_last(client, yes=yes)], output)
            for_each.do(client.cancel_task, lambda task: CANCELLED.get(task["status"], UNCHANGED))


def confirmed_last(client: Client, *, yes: bool) -> str:
    """Return the last task submitted from here; name it, and at a terminal ask for confirmation."""
    task = client.get_task(task_or_last(client, None))
    what = shlex.join(task["command"] or ()) or task["script_path"] or "a script"
    if task["call"] is not None:
        what = format_call(task["call"])
    which = f"{task['id']} ({task['name'] or what[:60]}), which is {task['status']}"
    if not yes and can_ask():
        ask(f"Cancel the last task, {which}?")
    else:
        print_notice(f"The last task submitted from here is {which}.")
    return task["id"]


def cancel_by_filter(client: Client, filters: TaskFilter, output: Output, *, yes: bool) -> None:
    """Cancel every task that matches a filter, after confirmation."""
    sentence = ", ".join(f"{name} {_format_filter_value(value)}" for name, value in filters.items())
    confirm(f"Cancel every task with {sentence}?", yes=yes)
    count = client.cancel_tasks(**filters)
    if output in (Output.JSON, Output.JSONL):
        print_value({"cancelled": count}, output)
    elif output is Output.TABLE:
        print(f"{count_of(count, 'task')} cancelled.")


@with_task_flags
def update(
    flags: TaskFlags,
    task: Annotated[str, typer.Argument(metavar="ID", help="The task's ID.")],
    output: OutputFlag = Output.TABLE,
) -> None:
    """Update a task that has not started yet."""
    fields = task_fields(flags, (), now=now())
    tell_if_past(fields, now())
    add_bundle(flags.bundle, fields, needs_command=False)
    if not fields:
        raise typer.BadParameter("There is nothing to change. Give a flag, such as --priority 5.")
    with connect() as client:
        changed = client.update_task(task, **fields)
    if output is Output.TABLE:
        print(f"Task {changed['id']} updated: {', '.join(fields)}.")
    else:
        print_value(changed, output)


def replay(
    task: TaskId = None, downstream: DownstreamFlag = False, output: OutputFlag = Output.TABLE
) -> None:
    """Submit an ended task again, as a new task."""
    with connect() as client:
        old = task_or_last(client, task)
        new = client.replay_task(old, downstream=downstream)
        last_task.remember(client.endpoint, new["id"])
        print_replayed(client, old, new, output, downstream=downstream)


def print_replayed(
    client: Client, old: str, new: Task, output: Output, *, downstream: bool
) -> None:
    """Print the new task of a replay."""
    if output is not Output.TABLE:
        print_value(new, output)
        return
    sentence = f"Task {new['id']} submitted, a replay of {old}"
    if downstream and new["graph"]:
        others = sum(client.get_graph(new["graph"])["counts"].values()) - 1
        depend = "depends" if others == 1 else "depend"
        sentence += f", with {count_of(others, 'task')} that {depend} on it in graph {new['graph']}"
    print(f"{sentence}.")


def _format_filter_value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)
