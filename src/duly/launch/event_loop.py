"""Runs a process's work to its end, on the fast event loop."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from duly.private_file import close_to_others

T = TypeVar("T")
SELDOM = (10_000, 20, 50)
"""After how many new objects the collector looks at the youngest; then at those that stay."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, and let the first error of a group of them stand for all."""
    close_to_others()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except BaseExceptionGroup as group:
        raise _first(group) from group


def spare_the_collector() -> None:
    """Let the garbage collector look at requests, seldom, and no more at what is there by now.

    Modules and routes stay for as long as the process runs, and going through all of them again
    and again took two fifths of the time in which a batch is checked (ADR 0011).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
