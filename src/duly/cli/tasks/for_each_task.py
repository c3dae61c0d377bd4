"""One thing done to several tasks that are given by their ids."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from duly.cli.connect import say_error
from duly.cli.exits import code_of_error
from duly.cli.output import Output, print_items, print_value
from duly.client.shapes import Task
from duly.client.sync import Client
from duly.errors import DulyError, NotFound, Unreachable

TaskIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="The tasks; the last one submitted from here if left out."),
]
OTHER = "{id} is {status}"


class Each:
    """The tasks of a command; one that is refused does not keep the others."""

    def __init__(self, client: Client, tasks: list[str], output: Output) -> None:
        self._client = client
        self._tasks = tasks
        self._output = output

    def do(self, act: Callable[[str], Task], say: Callable[[Task], str]) -> None:
        """Do it to each, and print what `say` says of it, a template over its fields."""
        done: list[Task] = []
        code = 0
        for task in self._tasks:
            try:
                done.append(self._act(act, task))
            except Unreachable:
                raise
            except DulyError as error:
                say_error(error)
                code = code_of_error(error)
                continue
            if self._output is Output.TABLE:
                print(say(done[-1]).format_map(done[-1]))
        self._print(done)
        if code:
            raise typer.Exit(code)

    def _act(self, act: Callable[[str], Task], task: str) -> Task:
        try:
            return act(task)
        except NotFound:
            whole = None
            with suppress(DulyError):
                whole = self._client.get_graph(task)
            if whole is None:
                raise
            raise NotFound(f"{task} is a graph; give it with --graph.") from None

    def _print(self, done: list[Task]) -> None:
        if self._output is Output.TABLE:
            return
        if len(self._tasks) == 1 and done:
            print_value(done[0], self._output)
        else:
            print_items(done, None, self._output)
