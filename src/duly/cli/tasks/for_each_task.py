"""Applies an action to each of several task ids, and reports every error."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from duly.cli.completion import complete_task
from duly.cli.connect import print_error
from duly.cli.exit_codes import exit_code_for_error
from duly.cli.output.printing import Output, print_items, print_value
from duly.cli.tasks.find_task import is_id
from duly.client.shapes.task_shapes import Task
from duly.client.sync import Client
from duly.errors import DulyError, NotFound, Unreachable

TaskIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID...",
        help="The tasks' IDs. [default: the last task submitted from here]",
        autocompletion=complete_task,
    ),
]
UNCHANGED = "Task {id} is {status}."


class ForEachTask:
    """The tasks of a command; an error of one does not stop the others."""

    def __init__(self, client: Client, tasks: list[str], output: Output) -> None:
        self._client = client
        self._tasks = tasks
        self._output = output

    def do(self, act: Callable[[str], Task], describe: Callable[[Task], str]) -> None:
        """Apply `act` to each task, and print the template that `describe` returns for it."""
        changed: list[Task] = []
        code = 0
        for task in self._tasks:
            try:
                changed.append(self._act(act, task))
            except Unreachable:
                raise
            except DulyError as error:
                print_error(error)
                code = exit_code_for_error(error)
                continue
            if self._output is Output.TABLE:
                print(describe(changed[-1]).format_map(changed[-1]))
        self._print(changed)
        if code:
            raise typer.Exit(code)

    def _act(self, act: Callable[[str], Task], task: str) -> Task:
        try:
            return act(task)
        except NotFound:
            graph = None
            with suppress(DulyError):
                graph = self._client.get_graph(task)
            if graph is None and not is_id(task):
                raise NotFound(
                    f"There is no task {task[:60]!r}. A task to change is given by its ID; find it "
                    "with 'duly list --name NAME'."
                ) from None
            if graph is None:
                raise
            raise NotFound(f"{task} is a graph, not a task. Give --graph {task}.") from None

    def _print(self, changed: list[Task]) -> None:
        if self._output is Output.TABLE:
            return
        if len(self._tasks) == 1 and changed:
            print_value(changed[0], self._output)
        else:
            print_items(changed, None, self._output)
