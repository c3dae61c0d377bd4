"""Changing tasks: cancel, update and replay."""

import sys
from typing import Annotated

import typer

from duly.cli import last
from duly.cli.bundle import add_bundle
from duly.cli.connect import connect, which_task
from duly.cli.each import OTHER, Each, TaskIds
from duly.cli.flags import TaskFlags, with_task_flags
from duly.cli.graph_wishes import GraphFlag, cancel_whole
from duly.cli.output import Output, OutputFlag, print_value
from duly.cli.request import task_fields
from duly.cli.tasks import LabelFlag, NameFlag, SinceFlag, StatusFlag, TaskId, task_filter
from duly.cli.text import now
from duly.client.shapes import Task, TaskFilter
from duly.client.sync import Client

DownstreamFlag = Annotated[
    bool, typer.Option("--downstream", help="With those that were cancelled because of it.")
]
CANCELLED = {
    "cancelled": "cancelled {id}",
    "running": "cancelling {id}: its processes are being stopped",
}


def cancel(
    tasks: TaskIds = None,
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    graph: GraphFlag = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Cancel tasks: those that wait never start, those that run are stopped."""
    which = task_filter(status, name, label, since)
    if bool(which) + bool(tasks) + bool(graph) > 1:
        raise typer.BadParameter("Give IDs, a filter or a graph, not several.", param_hint="ID")
    with connect() as client:
        if graph:
            cancel_whole(client, graph, output)
        elif which:
            cancel_by_filter(client, which, output, sure=yes)
        else:
            each = Each(client, tasks or [which_task(client, None)], output)
            each.do(client.cancel_task, lambda task: CANCELLED.get(task["status"], OTHER))


def cancel_by_filter(client: Client, which: TaskFilter, output: Output, *, sure: bool) -> None:
    """Cancel all the tasks that a filter means; at a terminal, ask first."""
    if not sure and sys.stdin.isatty() and sys.stderr.isatty():
        said = ", ".join(f"{name} {_say(value)}" for name, value in which.items())
        typer.confirm(f"Cancel every task with {said}?", abort=True, err=True)
    count = client.cancel_tasks(**which)
    if output in (Output.JSON, Output.JSONL):
        print_value({"cancelled": count}, output)
    elif output is Output.TABLE:
        print(f"cancelled {count} {'task' if count == 1 else 'tasks'}")


@with_task_flags
def update(
    flags: TaskFlags,
    task: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change a task that has not started yet."""
    fields = task_fields(flags, (), now=now())
    add_bundle(flags.bundle, fields, needs_command=False)
    if not fields:
        raise typer.BadParameter("Say what to change, such as --priority 5.")
    with connect() as client:
        changed = client.update_task(task, **fields)
    if output is Output.TABLE:
        print(f"updated {changed['id']}: {', '.join(fields)}")
    else:
        print_value(changed, output)


def replay(
    task: TaskId = None, downstream: DownstreamFlag = False, output: OutputFlag = Output.TABLE
) -> None:
    """Submit a task that has ended once more, as a new task."""
    with connect() as client:
        old = which_task(client, task)
        new = client.replay_task(old, downstream=downstream)
        last.remember(client.endpoint.name, new["id"])
        say_replayed(client, old, new, output, downstream=downstream)


def say_replayed(client: Client, old: str, new: Task, output: Output, *, downstream: bool) -> None:
    """Print what a replay made."""
    if output is not Output.TABLE:
        print_value(new, output)
        return
    said = f"submitted {new['id']}, a replay of {old}"
    if downstream and new["graph"]:
        counts = client.get_graph(new["graph"])["counts"]
        said += f", with {sum(counts.values()) - 1} that depend on it: graph {new['graph']}"
    print(said)


def _say(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)
