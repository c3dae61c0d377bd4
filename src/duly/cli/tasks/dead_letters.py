"""Manage dead letters: failed tasks with no attempts left."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from duly.cli import last_task
from duly.cli.connect import connect, print_notice
from duly.cli.output.printing import TASK_COLUMNS, Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean_lines, now
from duly.cli.tasks.change import DownstreamFlag, print_replayed
from duly.cli.tasks.tasks import ShowEnvFlag, print_task
from duly.cli.tasks.times import parse_since
from duly.client.shapes.task_shapes import Task
from duly.client.sync import Client

dead = typer.Typer(
    name="dead", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The tasks' IDs.")]
ReasonFlag = Annotated[
    str | None, typer.Option(metavar="CODE", help="Only those with this reason code.")
]
SinceFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Only those that failed since then: 1h (ago), or 2027-01-31T06:30."
    ),
]
AllFlag = Annotated[
    bool, typer.Option("--all", help="All dead letters, or all that match --reason and --since.")
]


@dead.command("list")
def list_dead(
    reason: ReasonFlag = None,
    since: SinceFlag = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of items.")
    ] = 50,
    everything: AllFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List dead letters, newest first."""
    from_then = parse_since("--since", since) if since else None
    with connect() as client:
        if everything:
            letters = list(client.iter_dead_letters(reason=reason, since=from_then))
            more = None
        else:
            page = client.list_dead_letters(reason=reason, since=from_then, limit=limit)
            letters, more = page["items"], page["next_cursor"]
    if output is not Output.TABLE:
        print_items(letters, more, output)
    elif letters:
        from duly.cli.output.tables import print_tasks

        print_tasks(letters, now())
        if more:
            print_notice("There are more. List them with --all.")
    else:
        print("No dead letters.")


@dead.command()
def show(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task's ID.")],
    show_env: ShowEnvFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show a dead letter with its reason and the end of its log."""
    with connect() as client:
        letter = client.get_dead_letter(task)
    print_task(letter, output, show_env=show_env)
    if output is Output.TABLE and (tail := letter["log_tail"]):
        print(f"\n{clean_lines(tail)}".rstrip())


@dead.command()
def replay(
    tasks: Ids = None,
    reason: ReasonFlag = None,
    since: SinceFlag = None,
    everything: AllFlag = False,
    downstream: DownstreamFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Submit dead letters again, as new tasks."""
    replayed: list[Task] = []
    with connect() as client:
        old_ids = select_letters(client, tasks, reason, since, everything=everything)
        try:
            for old in old_ids:
                replayed.append(client.replay_dead_letter(old, downstream=downstream))
                last_task.remember(client.endpoint, replayed[-1]["id"])
                if output is Output.TABLE:
                    print_replayed(client, old, replayed[-1], output, downstream=downstream)
        finally:  # Also what was replayed before an error.
            _print_changed(replayed, output, is_one=tasks is not None and len(tasks) == 1)


@dead.command()
def drop(
    tasks: Ids = None,
    reason: ReasonFlag = None,
    since: SinceFlag = None,
    everything: AllFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Drop tasks from the dead letters; their history is kept."""
    dropped: list[dict[str, str]] = []
    with connect() as client:
        selected = select_letters(client, tasks, reason, since, everything=everything)
        try:
            for task in selected:
                client.drop_dead_letter(task)
                dropped.append({"id": task})
                if output is Output.TABLE:
                    print(f"Task {task} dropped from the dead letters.")
        finally:  # Also what was dropped before an error.
            is_one = tasks is not None and len(tasks) == 1
            _print_changed(dropped, output, is_one=is_one, columns=("id",))


def _print_changed(
    changed: Sequence[Mapping[str, Any]],
    output: Output,
    *,
    is_one: bool,
    columns: Sequence[str] = TASK_COLUMNS,
) -> None:
    """Print what was changed in a machine-readable format: one value, or a list."""
    if output is Output.TABLE:
        return
    if not is_one:
        print_items(changed, None, output, columns)
    elif changed:
        print_value(changed[0], output, columns)


def select_letters(
    client: Client,
    tasks: list[str] | None,
    reason: str | None,
    since: str | None,
    *,
    everything: bool,
) -> Iterable[str]:
    """Return the selected ids, listed completely before the first is changed."""
    if tasks:
        if everything or reason or since:
            raise typer.BadParameter("Give either task IDs or a filter, not both.")
        return tasks
    if not (everything or reason or since):
        raise typer.BadParameter("Nothing is selected. Give task IDs, --reason, --since or --all.")
    from_then = parse_since("--since", since) if since else None
    letters: list[Task] = list(client.iter_dead_letters(reason=reason, since=from_then))
    if not letters:
        print_notice("No dead letters match." if reason or since else "No dead letters.")
    return [letter["id"] for letter in letters]
