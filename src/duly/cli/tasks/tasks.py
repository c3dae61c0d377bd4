"""Looking at tasks: list, show, wait, logs, attempts, why and result."""

from collections.abc import Iterable
from signal import SIGINT
from typing import Annotated

import typer

from duly.cli.connect import WHILE_WAITING, connect, ours, say, which_task
from duly.cli.details import task_details
from duly.cli.exits import SIGNALLED, code_of_task
from duly.cli.output import (
    Output,
    OutputFlag,
    print_items,
    print_json,
    print_lines,
    print_value,
    write_bytes,
)
from duly.cli.request import moment, pairs
from duly.cli.submit import wait_for
from duly.cli.text import clean, now
from duly.client.shapes import Task, TaskFilter
from duly.client.sync import Client

TaskId = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The task; the last one submitted from here if left out."),
]
StatusFlag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATUS",
        help="scheduled, blocked, waiting, running, paused, done, failed or cancelled; or several.",
    ),
]
NameFlag = Annotated[str | None, typer.Option(metavar="NAME", help="Those with this name.")]
LabelFlag = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Those with this label.")
]
SinceFlag = Annotated[
    str | None, typer.Option(metavar="TIME", help="Submitted since: 1h, or 2027-01-31T06:30.")
]
ATTEMPT_COLUMNS = (
    "attempt",
    "node",
    "outcome",
    "exit_code",
    "leased_at",
    "started_at",
    "finished_at",
)


def task_filter(
    status: list[str] | None,
    name: str | None,
    label: list[str] | None,
    since: str | None = None,
    user: str | None = None,
    node: str | None = None,
) -> TaskFilter:
    """Return the filter that the flags ask for, without what was not said."""
    which: TaskFilter = {}
    if status:
        which["status"] = [part for text in status for part in text.split(",") if part]
    if name is not None:
        which["name"] = name
    if label:
        which["labels"] = pairs("--label", label)
    if since is not None:
        which["since"] = moment("--since", since)
    if user is not None:
        which["user"] = user
    if node is not None:
        which["node"] = node
    return which


def list_tasks(
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Those of this user.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Those on this node.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where a list ended.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List tasks, newest first."""
    which = task_filter(status, name, label, since, user, node)
    with connect() as client:
        tasks: Iterable[Task]
        if everything:
            tasks, more = client.iter_tasks(**which), None
        else:
            page = client.list_tasks(limit=limit, cursor=cursor, **which)
            tasks, more = page["items"], page["next_cursor"]
        if output is Output.TABLE:
            show_tasks(list(tasks), more)
        else:
            print_items(tasks, more, output)


def contact(client: Client, task: str | None) -> Task:
    """Return the task that is meant; from then on, a server that restarts is waited for."""
    found = client.get_task(which_task(client, task))
    client.patience = WHILE_WAITING
    return found


def show_tasks(tasks: list[Task], more: str | None) -> None:
    """Draw a list of tasks for a person."""
    if not tasks:
        print("No tasks.")
        return
    from duly.cli.tables import draw_tasks

    draw_tasks(tasks, now())
    if more:
        print(f"There are more: --all shows them, --cursor {clean(more)} the next page.")


def show(task: TaskId = None, output: OutputFlag = Output.TABLE) -> None:
    """Show everything about a task."""
    with connect() as client:
        found = client.get_task(which_task(client, task))
    if output is not Output.TABLE:
        print_value(found, output)
        return
    from duly.cli.tables import draw_pairs

    draw_pairs(task_details(found, now()))


def wait(
    task: TaskId = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after that long: 30s, 5m.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Wait until a task has ended, and exit as it did."""
    with ours(), connect() as client:
        wanted = contact(client, task)["id"]
        ended = wait_for(client, wanted, timeout)
        if output is not Output.TABLE:
            print_value(ended, output)
    raise typer.Exit(code_of_task(ended))


def logs(
    task: TaskId = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the task has ended.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="This attempt, not the latest.")
    ] = None,
) -> None:
    """Print what a task has written, byte by byte as it was."""
    with connect() as client:
        if not follow:
            write_bytes(client.read_logs(which_task(client, task), attempt))
            return
        wanted = contact(client, task)["id"]
        try:
            for chunk in client.follow_logs(wanted, attempt):
                write_bytes(chunk)
        except KeyboardInterrupt:
            raise typer.Exit(SIGNALLED + SIGINT) from None


def attempts(task: TaskId = None, output: OutputFlag = Output.TABLE) -> None:
    """List the attempts at a task, and how each ended."""
    with connect() as client:
        found = client.list_attempts(which_task(client, task))
    if output is Output.ID:
        raise typer.BadParameter("Attempts have no ids of their own.", param_hint="--output")
    if output is not Output.TABLE:
        print_items(found, None, output, ATTEMPT_COLUMNS)
    elif found:
        from duly.cli.tables import draw_attempts

        draw_attempts(found, now())
    else:
        print("It has not been tried yet; `duly why` says what it waits for.")


def why(task: TaskId = None, output: OutputFlag = Output.TABLE) -> None:
    """Say why a task is where it is."""
    with connect() as client:
        reason = client.explain(which_task(client, task))
    if output is Output.TABLE:
        print(clean(reason["message"]))
    else:
        print_value(reason, Output.JSON if output is Output.ID else output, ("code", "message"))


def result(task: TaskId = None, output: OutputFlag = Output.JSON) -> None:
    """Print the result that a task left, as JSON."""
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter("A result is JSON; try json or jsonl.", param_hint="--output")
    with connect() as client:
        asked = which_task(client, task)
        found = client.get_result(asked)
        if found is None:
            say(_without_result(client.get_task(asked)))
    if output is Output.JSONL:
        print_lines([found])
    else:
        print_json(found)


def _without_result(task: Task) -> str:
    """Say why the result of a task is null."""
    reason = task["reason"]
    if reason is not None and reason["code"] == "result_not_kept":
        return reason["message"]
    if task["status"] != "done":
        return f"The task is {task['status']}, and has no result for that."
    return "The task left no result, or null."
