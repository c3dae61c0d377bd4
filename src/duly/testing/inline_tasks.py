"""Runs tasks in this process as they are submitted."""

from collections.abc import Iterator
from contextlib import contextmanager

from duly.client.functions.connection import replacements
from duly.client.functions.inline import Inline


@contextmanager
def inline() -> Iterator[Inline]:
    """Run tasks of all apps at once, in this process, as they are submitted in the block.

    Yields the tasks and schedules that were submitted.
    """
    tasks = Inline()
    replacements.append(tasks)
    try:
        yield tasks
    finally:
        replacements.remove(tasks)
