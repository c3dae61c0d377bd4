"""`duly wait`: waits for tasks and graphs."""

from contextlib import suppress
from typing import Annotated, NamedTuple

import typer

from duly import clock
from duly.cli.completion import complete_task
from duly.cli.connect import WAITING_RETRIES, connect, exit_125_on_error
from duly.cli.exit_codes import exit_code_for_task
from duly.cli.graphs.graph_wait import exit_code_for_graph, wait_for_graph
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.tasks.submission.request import parse_seconds
from duly.cli.tasks.submission.submit import wait_for
from duly.cli.tasks.tasks import get_task_for_waiting
from duly.client.shapes.graph_shapes import Graph
from duly.client.shapes.task_shapes import Task
from duly.client.sync import Client
from duly.errors import NotFound


def wait(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID...",
            help="Tasks or graphs by ID, or a name for the latest task, or else graph, of that "
            "name. [default: the last task submitted from here]",
            autocompletion=complete_task,
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after this time: 30s, 5m.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Wait until tasks or graphs have ended, and exit with the exit code of the task.

    The exit code of a graph is 1 unless all of its tasks are done. Of several tasks and graphs it
    is the first exit code that is not 0, in the order of the IDs.
    """
    limit = None if timeout is None else parse_seconds("--timeout", timeout)
    with exit_125_on_error(), connect() as client:
        # All are looked up first, so that a mistyped id is found before hours of waiting.
        found = [_find(client, target) for target in targets or (None,)]
        ended = _wait_for_all(client, found, limit)
    values = [each.value for each in ended]
    if output is not Output.TABLE and len(values) == 1:
        print_value(values[0], output)
    elif output is not Output.TABLE:
        print_items(values, None, output)
    raise typer.Exit(next((each.exit_code for each in ended if each.exit_code), 0))


class _Target(NamedTuple):
    id: str
    is_graph: bool = False


class _Ended(NamedTuple):
    value: Task | Graph
    exit_code: int


def _find(client: Client, target: str | None) -> _Target:
    try:
        return _Target(get_task_for_waiting(client, target)["id"])
    except NotFound:
        if target is not None:
            with suppress(NotFound):
                return _Target(client.get_graph(target)["id"], is_graph=True)
        raise


def _wait_for_all(client: Client, found: list[_Target], timeout: float | None) -> list[_Ended]:
    """Wait for tasks and graphs within one timeout."""
    client.patience = WAITING_RETRIES
    until = None if timeout is None else clock.monotonic() + timeout
    ended = []
    for target in found:
        left = None if until is None else max(until - clock.monotonic(), 0.0)
        if target.is_graph:
            graph = wait_for_graph(client, target.id, left)
            ended.append(_Ended(graph, exit_code_for_graph(graph)))
        else:
            prefix = f"{target.id}: " if len(found) > 1 else ""
            task = wait_for(client, target.id, left, prefix=prefix)
            ended.append(_Ended(task, exit_code_for_task(task)))
    return ended
