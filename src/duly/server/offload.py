"""Runs the CPU-bound work of large requests in a thread, so that the event loop stays responsive.

To decode, check and link a graph of 100,000 tasks takes seconds of Python, which would block the
event loop. A thread is interrupted every millisecond (`SWITCH_INTERVAL_SECONDS`), and the functions
need not be written as coroutines. There is one such thread: large requests run one after the other,
or each of them would slow down all other clients.

The garbage collector is paused for large requests. The objects that a request is decoded into have
no cycles, and are freed with the response; every full collection would walk all of them, which
takes a quarter of a second for 100,000 tasks and stops all threads.

Decision: docs/adr/0016-one-http-path.md.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

SWITCH_INTERVAL_SECONDS = 0.001
"""How long the event loop waits for the interpreter lock; set when a server is launched."""
MIN_TASKS = 1000
"""Fewer tasks take a few milliseconds, and stay on the event loop."""
MIN_BYTES = 2**20
"""The smallest body for which the garbage collector is paused."""
EXECUTOR = ThreadPoolExecutor(1, thread_name_prefix="duly-offload")

P = ParamSpec("P")
T = TypeVar("T")


async def offload(tasks: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `function`, which handles `tasks` tasks and must not block on I/O."""
    if tasks < MIN_TASKS:
        return function(*args, **kwargs)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(EXECUTOR, partial(function, *args, **kwargs))


@contextmanager
def collector_paused(size: int) -> Iterator[None]:
    """Pause the garbage collector during the block, for a body of `size` bytes.

    Of concurrent blocks only the first pauses it, so that no pause is longer than one request.
    """
    if size < MIN_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
