"""Runs a server: its components in loops of their own, and the API in front of them."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import uvicorn

from duly.api.app import create_app
from duly.config import Settings
from duly.errors import ConfigError, Unavailable
from duly.server import parts as server_parts
from duly.server.parts import Parts
from duly.store.database import Database

log = logging.getLogger(__name__)
CLOSING = 5
"""Seconds that open requests get to end when the server stops."""


@dataclass(frozen=True)
class ServeOptions:
    """What a server is started with; `dsn` is a secret and never logged."""

    dsn: str = field(repr=False)
    store_url: str
    host: str = "127.0.0.1"
    port: int = 8470
    settings: Settings = field(default_factory=Settings)


def listen(host: str, port: int) -> socket.socket:
    """Open the port before anything else, so that a taken one is known at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Choose another with --port."
        ) from error
    return sock


async def serve(
    options: ServeOptions,
    stop: asyncio.Event,
    ready: Callable[[Parts], None],
    sock: socket.socket | None = None,
) -> None:
    """Run a server until `stop` is set; `ready` is called once it takes requests."""
    sock = sock or listen(options.host, options.port)
    async with AsyncExitStack() as stack:
        stack.callback(sock.close)
        database = await Database.connect(options.dsn, options.settings.database)
        stack.push_async_callback(database.close)
        parts = server_parts.build(database, options.settings, options.store_url)
        # The first tick gives the server its number; without one it can admit nothing.
        await parts.cluster_manager.tick()
        await _run(parts, sock, stop, ready)


async def _run(
    parts: Parts, sock: socket.socket, stop: asyncio.Event, ready: Callable[[Parts], None]
) -> None:
    api = uvicorn.Server(
        uvicorn.Config(
            create_app(parts),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=CLOSING,
        )
    )
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(service.run()) for service in parts.services]
        serving = group.create_task(_serve_api(api, sock))
        group.create_task(_announce(api, lambda: ready(parts)))
        await stop.wait()
        api.should_exit = True
        await serving
        for loop in loops:
            loop.cancel()
    try:
        await parts.cluster_manager.stop()
    except Unavailable as error:
        log.warning("could not resign: %s", error)


async def _serve_api(api: uvicorn.Server, sock: socket.socket) -> None:
    # Not serve(): that one would install signal handlers, which are the launcher's to handle.
    await api._serve(sockets=[sock])


async def _announce(api: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not api.started:
        await asyncio.sleep(0.01)
    ready()
