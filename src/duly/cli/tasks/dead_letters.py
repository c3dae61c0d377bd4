"""The dead letters: tasks that failed for good, set aside for a person to look at."""

from collections.abc import Iterable
from typing import Annotated

import typer

from duly.cli import last
from duly.cli.change import DownstreamFlag, say_replayed
from duly.cli.connect import connect, say
from duly.cli.details import task_details
from duly.cli.output import Output, OutputFlag, print_ids, print_items, print_value
from duly.cli.request import moment
from duly.cli.text import clean_lines, now
from duly.client.shapes import Task
from duly.client.sync import Client

dead = typer.Typer(
    name="dead", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The tasks.")]
ReasonFlag = Annotated[
    str | None, typer.Option(metavar="CODE", help="Those with this code as their reason.")
]
SinceFlag = Annotated[
    str | None, typer.Option(metavar="TIME", help="Those that failed since: 1h, or a time.")
]
AllFlag = Annotated[bool, typer.Option("--all", help="All that the other flags mean.")]


@dead.command("list")
def list_dead(
    reason: ReasonFlag = None,
    since: SinceFlag = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")] = 50,
    everything: AllFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the dead letters, newest first."""
    from_then = moment("--since", since) if since else None
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
        from duly.cli.tables import draw_tasks

        draw_tasks(letters, now())
        if more:
            print("There are more: --all shows them.")
    else:
        print("No dead letters.")


@dead.command()
def show(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show a dead letter: why it failed, and the end of what it wrote."""
    with connect() as client:
        letter = client.get_dead_letter(task)
    if output is not Output.TABLE:
        print_value(letter, output)
        return
    from duly.cli.tables import draw_pairs

    draw_pairs(task_details(letter, now()))
    if tail := letter["log_tail"]:
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
    """Submit dead letters once more, as new tasks."""
    with connect() as client:
        for old in chosen(client, tasks, reason, since, everything=everything):
            new = client.replay_dead_letter(old, downstream=downstream)
            last.remember(client.endpoint.name, new["id"])
            form = Output.JSONL if output is Output.JSON and not tasks else output
            say_replayed(client, old, new, form, downstream=downstream)


@dead.command()
def drop(
    tasks: Ids = None,
    reason: ReasonFlag = None,
    since: SinceFlag = None,
    everything: AllFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Take tasks out of the dead letters; their history stays."""
    with connect() as client:
        for task in chosen(client, tasks, reason, since, everything=everything):
            client.drop_dead_letter(task)
            if output is Output.TABLE:
                print(f"dropped {task}")
            else:
                print_ids([{"id": task}])


def chosen(
    client: Client,
    tasks: list[str] | None,
    reason: str | None,
    since: str | None,
    *,
    everything: bool,
) -> Iterable[str]:
    """Return the ids that are meant, read before anything is done to them."""
    if tasks:
        if everything or reason or since:
            raise typer.BadParameter("Give IDs or a filter, not both.", param_hint="ID")
        return tasks
    if not (everything or reason or since):
        raise typer.BadParameter("Give IDs, --reason, --since, or --all for all of them.")
    from_then = moment("--since", since) if since else None
    letters: list[Task] = list(client.iter_dead_letters(reason=reason, since=from_then))
    if not letters:
        say("No dead letters.")
    return [letter["id"] for letter in letters]
