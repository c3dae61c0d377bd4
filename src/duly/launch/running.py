"""Runs a process's work to its end, on the fast event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, and let the first error of a group of them stand for all."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except BaseExceptionGroup as group:
        raise _first(group) from group


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
