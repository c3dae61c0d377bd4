"""`duly attempts`: lists the attempts of a task, or those of all tasks."""

from typing import Annotated

import typer

from duly.cli.completion import complete_outcome
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items
from duly.cli.output.text import now
from duly.cli.tasks.find_task import task_to_read
from duly.cli.tasks.tasks import ReadTaskId, TenantFlag
from duly.cli.tasks.times import parse_since
from duly.client.shapes.attempt_shapes import AttemptFilter, ListedAttempt
from duly.client.shapes.task_shapes import Attempt, TenantPage
from duly.client.sync import Client

COLUMNS = (
    "attempt",
    "node",
    "outcome",
    "exit_code",
    "leased_at",
    "started_at",
    "finished_at",
)
DEFAULT_LIMIT = 50


def attempts(
    task: ReadTaskId = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List those of all tasks; so does any filter.")
    ] = False,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Only those of this user's tasks.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of tasks with this name or ref.")
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OUTCOME",
            help="succeeded, failed, capped, overused, lost, preempted, expired, cancelled; or "
            "several.",
            autocompletion=complete_outcome,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only those leased since: 1h ago, or 2027-01-31T06:30."),
    ] = None,
    tenant: TenantFlag = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=1000, metavar="N", help="Maximum number of items. [default: 50]"),
    ] = None,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the attempts of a task and their outcomes, or those of all tasks.

    With --all or a filter, the attempts of all tasks are listed, newest first. A key with the scope
    admin lists those of all tenants, unless --tenant names one.
    """
    if output is Output.ID:
        raise typer.BadParameter(
            "attempts have no IDs. Use table, json, jsonl or csv.", param_hint="--output"
        )
    filters = _filters(user, name, outcome, since, tenant)
    if not (everything or filters or limit or cursor):
        with connect() as client:
            _print_attempts(client.list_attempts(task_to_read(client, task)), output)
        return
    if task is not None:
        raise typer.BadParameter(
            "Give either the ID of a task, or --all and filters for the attempts of all tasks."
        )
    with connect() as client:
        _print_page(read_page(client, filters, limit or DEFAULT_LIMIT, cursor), output)


def _filters(
    user: str | None,
    name: str | None,
    outcome: list[str] | None,
    since: str | None,
    tenant: str | None,
) -> AttemptFilter:
    filters: AttemptFilter = {}
    if user is not None:
        filters["user"] = user
    if name is not None:
        filters["name"] = name
    if outcome:
        filters["outcome"] = [part for text in outcome for part in text.split(",") if part]
    if since is not None:
        filters["since"] = parse_since("--since", since)
    if tenant is not None:
        filters["tenant"] = tenant
    return filters


def read_page(
    client: Client, filters: AttemptFilter, limit: int, cursor: str | None
) -> TenantPage[ListedAttempt]:
    """Return `limit` attempts, unless there are fewer: a page of the server may be short."""
    page = client.list_all_attempts(limit=limit, cursor=cursor, **filters)
    while page["next_cursor"] is not None and len(page["items"]) < limit:
        left = limit - len(page["items"])
        more = client.list_all_attempts(limit=left, cursor=page["next_cursor"], **filters)
        page["items"] += more["items"]
        page["next_cursor"] = more["next_cursor"]
    return page


def _print_attempts(found: list[Attempt], output: Output) -> None:
    if output is not Output.TABLE:
        print_items(found, None, output, COLUMNS)
    elif found:
        from duly.cli.output.tables import print_attempts

        print_attempts(found, now())
    else:
        print("No attempts yet. See what the task waits for with: duly why")


def _print_page(page: TenantPage[ListedAttempt], output: Output) -> None:
    if output is not Output.TABLE:
        columns = ("task", "name", "ref", "tenant", "user", *COLUMNS)
        print_items(page["items"], page["next_cursor"], output, columns)
    elif page["items"]:
        from duly.cli.output.tables import print_listed_attempts

        print_listed_attempts(page["items"], now(), with_tenant=page["tenant"] is None)
        print_next_cursor(page["next_cursor"])
    else:
        print("No attempts.")
