"""Runs the main coroutine of a process on uvloop, and tunes the garbage collector."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from duly.private_file import restrict_umask

T = TypeVar("T")
GC_THRESHOLDS = (10_000, 20, 50)
"""Thresholds of the three generations; Python's defaults are 700, 10, 10."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; raises the first error of an exception group in place of the group."""
    restrict_umask()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except BaseExceptionGroup as group:
        raise _first(group) from group


def tune_garbage_collector() -> None:
    """Exclude existing objects from garbage collection, and collect new ones less often.

    Modules and routes live as long as the process, and scanning them repeatedly took two fifths
    of the time needed to check a batch (ADR 0011).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
