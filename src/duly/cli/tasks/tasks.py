"""`duly list`, `show`, `logs`, `why` and `result`."""

from collections.abc import Iterable
from typing import Annotated

import typer

from duly.cli.completion import complete_node, complete_status, complete_task
from duly.cli.connect import WAITING_RETRIES, connect, print_notice
from duly.cli.entry import INTERRUPTED
from duly.cli.output.details import task_details
from duly.cli.output.printing import (
    Output,
    OutputFlag,
    print_items,
    print_json,
    print_lines,
    print_value,
    write_bytes,
)
from duly.cli.output.text import clean, localise_times, now
from duly.cli.output.truncation import MAX_NOTICE_BYTES, tell_if_truncated
from duly.cli.tasks.find_task import task_to_read, telling_graphs
from duly.cli.tasks.submission.request import parse_pairs
from duly.cli.tasks.times import parse_since
from duly.cli.tasks.watch import watch_list
from duly.client.shapes.task_shapes import Task, TaskFilter, TaskListFilter, TenantPage
from duly.client.sync import Client

TaskId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="The task's ID. [default: the last task submitted from here]",
        autocompletion=complete_task,
    ),
]
ReadTaskId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="The task's ID, or a name for the latest task of that name. "
        "[default: the last task submitted from here]",
        autocompletion=complete_task,
    ),
]
ReadTaskIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID...",
        help="The tasks' IDs, or names for the latest task of each name. "
        "[default: the last task submitted from here]",
        autocompletion=complete_task,
    ),
]
StatusFlag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATUS",
        help="Only those with this status, or with one of several: scheduled, blocked, waiting, "
        "running, paused, done, failed, cancelled.",
        autocompletion=complete_status,
    ),
]
NameFlag = Annotated[str | None, typer.Option(metavar="NAME", help="Only those with this name.")]
LabelFlag = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Only those with this label.")
]
SinceFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Only those submitted since then: 1h (ago), or 2027-01-31T06:30."
    ),
]
ShowEnvFlag = Annotated[
    bool, typer.Option("--show-env", help="Show the values of environment variables, too.")
]
NO_TASKS = "No tasks yet. Submit one: duly run -- echo hello"
NO_MATCH = "No tasks match."
HIDDEN_VALUE = "(hidden)"
"""Stands for the value of an environment variable."""
TenantFlag = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only this tenant's; needs the scope admin. [default: all]"),
]
OtherTenantFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="With a filter: those of another tenant; needs the scope admin."
    ),
]


def task_filter(
    status: list[str] | None,
    name: str | None,
    label: list[str] | None,
    since: str | None = None,
    user: str | None = None,
    node: str | None = None,
    tenant: str | None = None,
) -> TaskFilter:
    """Return the filter for the flags that were given; a tenant alone is refused."""
    filters: TaskFilter = {}
    if status:
        filters["status"] = [part for text in status for part in text.split(",") if part]
    if name is not None:
        filters["name"] = name
    if label:
        filters["labels"] = parse_pairs("--label", label)
    if since is not None:
        filters["since"] = parse_since("--since", since)
    if user is not None:
        filters["user"] = user
    if node is not None:
        filters["node"] = node
    if tenant is not None:
        if not filters:
            raise typer.BadParameter(
                "it needs a filter, such as --name or --status. A task ID is found in every "
                "tenant.",
                param_hint="--tenant",
            )
        filters["tenant"] = tenant
    return filters


def list_tasks(
    status: StatusFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    since: SinceFlag = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Only those of this user.")
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Only those on this node.", autocompletion=complete_node),
    ] = None,
    tenant: TenantFlag = None,
    overdue: Annotated[
        bool,
        typer.Option(
            "--overdue",
            help="Only those that wait past their delay tolerance; with --status, or that waited.",
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of items.")
    ] = 50,
    everything: Annotated[
        bool, typer.Option("--all", help="List all, not only the first page.")
    ] = False,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="The next_cursor of the previous page.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh the list until interrupted.")
    ] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List tasks, newest first.

    --name also finds the refs of graphs and batches. A key with the scope admin lists those of all
    tenants, unless --tenant names one.
    """
    filters: TaskListFilter = {
        **task_filter(status, name, label, since, user, node),
        "overdue": overdue,
    }
    if tenant is not None:
        filters["tenant"] = tenant
    if watch and (everything or cursor or output is not Output.TABLE):
        raise typer.BadParameter(
            "it refreshes one page of a table. Leave out --all, --cursor and --output.",
            param_hint="--watch",
        )
    no_tasks = NO_MATCH if any(filters.values()) else NO_TASKS
    with connect() as client:
        if watch:
            watch_list(lambda: print_task_page(client.list_tasks(limit=limit, **filters), no_tasks))
            return
        tasks: Iterable[Task]
        page = client.list_tasks(limit=1 if everything else limit, cursor=cursor, **filters)
        if everything:
            tasks, more = client.iter_tasks(**filters), None
        else:
            tasks, more = page["items"], page["next_cursor"]
        if output is Output.TABLE:
            with_tenant = page["tenant"] is None
            print_task_list(list(tasks), more, with_tenant=with_tenant, no_tasks=no_tasks)
        else:
            print_items(tasks, more, output)


def get_task_for_waiting(client: Client, task: str | None) -> Task:
    """Return the task, and make the client wait out restarts of the server from now on."""
    shown = client.get_task(task_to_read(client, task))
    client.patience = WAITING_RETRIES
    return shown


def print_task_list(
    tasks: list[Task], more: str | None, *, with_tenant: bool = False, no_tasks: str = NO_TASKS
) -> None:
    """Print a list of tasks as a table, and how to get the rest; `no_tasks` if it is empty."""
    if not tasks:
        print(no_tasks)
        return
    from duly.cli.output.tables import print_tasks

    print_tasks(tasks, now(), with_tenant=with_tenant)
    if more:
        print_notice(f"There are more. List all with --all, or the next page with --cursor {more}.")


def print_task_page(page: TenantPage[Task], no_tasks: str) -> None:
    """Print one page of tasks as a table."""
    with_tenant = page["tenant"] is None
    print_task_list(page["items"], page["next_cursor"], with_tenant=with_tenant, no_tasks=no_tasks)


def show(
    task: ReadTaskId = None,
    show_env: ShowEnvFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show everything about a task.

    Of environment variables only the names are shown, because the values may be secrets.
    """
    with connect() as client, telling_graphs(client, [task]):
        shown = client.get_task(task_to_read(client, task))
    print_task(shown, output, show_env=show_env)


def print_task(shown: Task, output: Output, *, show_env: bool) -> None:
    """Print a task; without `show_env`, only the names of its environment variables."""
    if output is not Output.TABLE:
        print_value(shown if show_env else hide_env(shown), output)
        return
    from duly.cli.output.tables import print_pairs

    print_pairs(task_details(shown, now(), show_env=show_env))


def hide_env(task: Task) -> Task:
    """Return a task without the values of its environment variables, which may be secrets."""
    return {**task, "env": task["env"] and dict.fromkeys(task["env"], HIDDEN_VALUE)}


def logs(
    task: ReadTaskId = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the task has ended.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The attempt. [default: the latest]")
    ] = None,
) -> None:
    """Print the output of a task, unmodified."""
    with connect() as client, telling_graphs(client, [task]):
        if not follow:
            log = client.read_logs(task_to_read(client, task), attempt)
            write_bytes(log)
            tell_if_truncated(log)
            return
        task_id = get_task_for_waiting(client, task)["id"]
        try:
            end = b""
            for chunk in client.follow_logs(task_id, attempt):
                write_bytes(chunk)
                end = (end + chunk)[-MAX_NOTICE_BYTES:]
            tell_if_truncated(end)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def why(tasks: ReadTaskIds = None, output: OutputFlag = Output.TABLE) -> None:
    """Explain why tasks have their current status."""
    with connect() as client, telling_graphs(client, tasks or ()):
        ids = [task_to_read(client, task) for task in tasks or (None,)]
        reasons = {task_id: client.explain(task_id) for task_id in ids}
    if output is Output.TABLE:
        for task_id, reason in reasons.items():
            prefix = f"{task_id}: " if len(reasons) > 1 else ""
            print(clean(prefix + localise_times(reason["message"], now())))
        return
    form = Output.JSON if output is Output.ID else output
    if len(reasons) == 1:
        print_value(reasons[ids[0]], form, ("code", "message"))
    else:
        items = [{"task": task_id, **reason} for task_id, reason in reasons.items()]
        print_items(items, None, form, ("task", "code", "message"))


def result(task: ReadTaskId = None, output: OutputFlag = Output.JSON) -> None:
    """Print the result of a task as JSON.

    Exits with 1 if the task has failed or was cancelled.
    """
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter("a result is JSON. Use json or jsonl.", param_hint="--output")
    with connect() as client:
        task_id = task_to_read(client, task)
        shown = client.get_result(task_id)
        if shown is None:
            print_notice(_why_no_result(client.get_task(task_id)))
    if output is Output.JSONL:
        print_lines([shown])
    else:
        print_json(shown)


def _why_no_result(task: Task) -> str:
    """Return why the result of a task is null."""
    reason = task["reason"]
    if reason is not None and reason["code"] == "result_not_kept":
        return reason["message"]
    return "The task has no result, or its result is null."
