"""The embedded PostgreSQL for as long as `duly up` runs: started, watched, stopped."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from duly import alarm
from duly.errors import ConfigError
from duly.store.embedded import EmbeddedPostgres

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two tries to start it again."""
TRIM_INTERVAL = 60.0

T = TypeVar("T")


@asynccontextmanager
async def embedded_postgres(folder: Path) -> AsyncIterator[str]:
    """Give the DSN of the PostgreSQL in `folder`, which runs until the block ends."""
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
    """Start it again when it ends without us: killed, or out of memory."""
    while True:
        pid = postgres.running_pid()
        if pid is None or await _ends(pid, TRIM_INTERVAL):
            log.warning("PostgreSQL ended by itself; it is started again.")
            try:
                await _in_thread(postgres.start)
            except ConfigError as error:
                log.error("%s", error.message)
                await asyncio.sleep(PAUSE)
        await _in_thread(postgres.trim_log)


async def _ends(pid: int, within: float) -> bool:
    """Say whether a process ends `within` so many seconds, as soon as it does."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await alarm.wait_for(gone, within)
        return gone.is_set()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _in_thread(function: Callable[[], T]) -> T:
    """Call a function that blocks; being cancelled, wait for it all the same.

    Otherwise a Ctrl-C during the start would leave a server behind that nobody stops.
    """
    call = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise
