"""A server for as long as something lasts: the stretch of a block, or until a signal."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from duly.errors import ConfigError
from duly.launch.database import check_request_role, status
from duly.launch.interrupts import Interrupts
from duly.launch.ports import local_name, url_of
from duly.launch.serve import ServeOptions, listen, serve


@asynccontextmanager
async def serving(options: ServeOptions, sock: socket.socket) -> AsyncIterator[None]:
    """Run a server in this process, from when it takes requests until the block ends."""
    ready, stop = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        server = group.create_task(serve(options, stop, lambda _: ready.set(), sock))
        try:
            await ready.wait()
            yield
        finally:
            stop.set()
            await asyncio.wait([server])


async def serve_until_interrupted(options: ServeOptions, say: Callable[[str], None]) -> None:
    """Be a server, and nothing else."""
    await Interrupts().run(_serve(options, say))


async def _serve(options: ServeOptions, say: Callable[[str], None]) -> None:
    with listen(options.host, options.port) as sock:
        pending = (await status(options.dsn)).pending
        if pending:
            raise ConfigError(
                f"The database is not ready: {len(pending)} migrations are missing. "
                "Apply them with `duly db init` (a new one) or `duly db migrate`."
            )
        await check_request_role(options.dsn, options.settings.database.request_role)
        async with serving(options, sock):
            url = url_of(
                local_name(options.host),
                sock.getsockname()[1],
                scheme="https" if options.certificate else "http",
            )
            say(f"ready: {url}")
            await asyncio.Event().wait()
