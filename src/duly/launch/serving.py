"""Runs a server for the duration of a block, or until a signal."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from duly.errors import ConfigError
from duly.launch import store_identity
from duly.launch.database import check_request_role, status
from duly.launch.local.ports import UNENCRYPTED, is_loopback, public_name, url_of
from duly.launch.serve import ServeOptions, listen, serve
from duly.launch.signals import Signals

Say = Callable[[str], None]


@asynccontextmanager
async def serving(options: ServeOptions, sock: socket.socket) -> AsyncIterator[None]:
    """Run a server in this process; the block starts when it accepts requests."""
    store_id = await store_identity.check(options.dsn, options.store_url)
    options = replace(options, store_id=store_id)
    ready, stop = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        server = group.create_task(serve(options, stop, lambda _: ready.set(), sock))
        try:
            await ready.wait()
            yield
        finally:
            stop.set()
            await asyncio.wait([server])


async def serve_until_interrupted(options: ServeOptions, say: Say, warn: Say) -> int:
    """Run `duly serve` until a signal, and return the exit code.

    `say` prints output and `warn` prints warnings.
    """
    return await Signals().run(_serve(options, say, warn))


async def _serve(options: ServeOptions, say: Say, warn: Say) -> None:
    with listen(options.host, options.port) as sock:
        pending = (await status(options.dsn)).pending
        if pending:
            raise ConfigError(
                f"The database is not ready: pending migrations: {len(pending)}. Apply them "
                "with 'duly db init' (new database) or 'duly db migrate'."
            )
        await check_request_role(options.dsn, options.settings.database.request_role)
        async with serving(options, sock):
            url = url_of(
                public_name(options.host),
                sock.getsockname()[1],
                scheme="https" if options.certificate else "http",
            )
            if options.certificate is None and not is_loopback(options.host):
                warn(f"{UNENCRYPTED} For TLS, give --tls-cert and --tls-key.")
            say(f"ready: {url}")
            await asyncio.Event().wait()
