"""Does what takes long for a large request aside, so that other clients are served meanwhile.

To decode, check and link a graph of 100,000 tasks takes seconds of Python. On the event loop
nobody else would be served for as long. In a thread it is interrupted every millisecond
(`SWITCH_INTERVAL_SECONDS`), and the functions that do it stay plain. There is one such thread:
large requests are done one after the other, or each of them would slow down everybody else.

Python's collector stays away from a large request meanwhile. What a request is read into has no
cycles, and goes with the response; every full collection would pass all of it, a quarter of a
second for 100,000 tasks, and stop all threads for that.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

SWITCH_INTERVAL_SECONDS = 0.001
"""How long the event loop waits for its turn; set where a server is launched."""
MIN_TASKS = 1000
"""Fewer tasks take a few milliseconds, and are done in place."""
MIN_BYTES = 2**20
"""Bytes of a body from which on the collector stays away."""
THREAD = ThreadPoolExecutor(1, thread_name_prefix="duly-offload")

P = ParamSpec("P")
T = TypeVar("T")


async def offload(tasks: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `function` returns, which works on so many tasks and waits for nothing."""
    if tasks < MIN_TASKS:
        return function(*args, **kwargs)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(THREAD, partial(function, *args, **kwargs))


@contextmanager
def collector_paused(size: int) -> Iterator[None]:
    """Collect nothing while the block lasts, for a body of so many bytes.

    Of several at once the first decides, so it is never put off for longer than one request.
    """
    if size < MIN_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
