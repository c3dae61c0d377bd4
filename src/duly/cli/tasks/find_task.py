"""Finds the task of a command that only reads: by its id, its name, or as the last one.

A name stands for the latest task of that name, which is convenient to look at and dangerous to
change, so commands that change tasks accept ids only.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from duly.cli.connect import print_notice, task_or_last
from duly.cli.output.text import format_age, now
from duly.client.sync import Client
from duly.errors import DulyError, NotFound


def task_to_read(client: Client, task: str | None) -> str:
    """Return the id of a task given by id or name; by default that of the last submitted one.

    It prints to stderr which task a name stands for.
    """
    if task is None or is_id(task):
        return task_or_last(client, task)
    found = client.list_tasks(name=task, limit=1)["items"]
    if not found:
        raise NotFound(
            f"There is no task {task[:60]!r}. Give a task's ID or name from 'duly list'."
        )
    age = format_age(found[0]["submitted_at"], now())
    print_notice(f"{task!r} is task {found[0]['id']}, the latest of that name, submitted {age}.")
    return found[0]["id"]


@contextmanager
def telling_graphs(client: Client, tasks: Iterable[str | None]) -> Iterator[None]:
    """Say that an id is that of a graph, in place of that there is no such task."""
    try:
        yield
    except NotFound:
        for task in tasks:
            graph = None
            with suppress(DulyError):
                graph = client.get_graph(task) if task and is_id(task) else None
            if graph is not None:
                raise NotFound(
                    f"{task} is a graph, not a task. See its tasks with: duly graph {task}"
                ) from None
        raise


def is_id(text: str) -> bool:
    """Return True for an id, which has only digits."""
    return text.isascii() and text.isdecimal()
