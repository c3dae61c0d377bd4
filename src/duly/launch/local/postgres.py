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

RESTART_INTERVAL_SECONDS = 1.0
LOG_TRIM_INTERVAL_SECONDS = 60.0

T = TypeVar("T")


@asynccontextmanager
async def embedded_postgres(folder: Path) -> AsyncIterator[str]:
    """Yield the DSN of the PostgreSQL in `folder`, which runs until the block ends."""
    postgres = EmbeddedPostgres(folder)
    try:
        dsn = await _in_thread(postgres.start)
        async with asyncio.TaskGroup() as group:
            supervision = group.create_task(_supervise(postgres))
            try:
                yield dsn
            finally:
                supervision.cancel()
    finally:
        await _in_thread(postgres.stop)


async def _supervise(postgres: EmbeddedPostgres) -> None:
    """Restart PostgreSQL when it exits unexpectedly, and trim its log once a minute."""
    while True:
        pid = postgres.running_pid()
        if pid is None or await _exits_within(pid, LOG_TRIM_INTERVAL_SECONDS):
            log.warning("PostgreSQL exited unexpectedly; restarting it.")
            try:
                await _in_thread(postgres.start)
            except ConfigError as error:
                log.error("%s", error.message)
                await asyncio.sleep(RESTART_INTERVAL_SECONDS)
        await _in_thread(postgres.trim_log)


async def _exits_within(pid: int, seconds: float) -> bool:
    """Return True as soon as a process exits, or False after `seconds` seconds."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, exited.set)
    try:
        await timers.wait_for(exited, seconds)
        return exited.is_set()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def _in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a thread; if cancelled, still wait for its end.

    Otherwise a Ctrl-C during the start would leave an orphaned PostgreSQL behind.
    """
    call = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        call.exception()  # Retrieved, because asyncio logs an exception that nobody asked for.
        raise
