"""Starts, supervises and stops the embedded PostgreSQL of `duly up`."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from duly import timers
from duly.errors import ConfigError
from duly.store.embedded.embedded_postgres import EmbeddedPostgres

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two attempts to restart PostgreSQL."""
TRIM_INTERVAL = 60.0

T = TypeVar("T")


@asynccontextmanager
async def embedded_postgres(folder: Path) -> AsyncIterator[str]:
    """Yield the DSN of the PostgreSQL in `folder`, which runs until the block ends."""
    postgres = EmbeddedPostgres(folder)
    try:
        dsn = await _in_thread(postgres.start)
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(_keep(postgres))
            try:
                yield dsn
            finally:
                keeping.cancel()
    finally:
        await _in_thread(postgres.stop)


async def _keep(postgres: EmbeddedPostgres) -> None:
    """Restart PostgreSQL when it exits unexpectedly, such as when out of memory."""
    while True:
        pid = postgres.running_pid()
        if pid is None or await _ends(pid, TRIM_INTERVAL):
            log.warning("PostgreSQL exited unexpectedly; restarting it.")
            try:
                await _in_thread(postgres.start)
            except ConfigError as error:
                log.error("%s", error.message)
                await asyncio.sleep(PAUSE)
        await _in_thread(postgres.trim_log)


async def _ends(pid: int, within: float) -> bool:
    """Return True as soon as a process exits, or False after `within` seconds."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await timers.wait_for(gone, within)
        return gone.is_set()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a thread; if cancelled, still wait for its end.

    Otherwise a Ctrl-C during the start would leave an orphaned PostgreSQL behind.
    """
    call = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise
