"""Runs a server: its components in loops of their own, and the API in front of them."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field

import uvicorn

from duly.api.app import HEADERS, create_app
from duly.api.load_shedding import Door
from duly.api.rate_gate import RateGate
from duly.config import Settings
from duly.errors import ConfigError, Unavailable
from duly.http.gate import GatedHttpProtocol
from duly.http.server import HttpServer
from duly.launch import store_folder
from duly.launch.running import spare_the_collector
from duly.launch.tls import Certificate
from duly.server import parts as server_parts
from duly.server.offload import SWITCH_INTERVAL_SECONDS
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
    certificate: Certificate | None = None
    """What it proves itself with; without one it speaks plain HTTP."""


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
            f"Cannot listen on {host}:{port}: {error.strerror or error}. "
            "Choose another port with --port."
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
        store_folder.prepare(options.store_url)
        database = await Database.connect(options.dsn, options.settings.database)
        stack.push_async_callback(database.close)
        parts = server_parts.build(database, options.settings, options.store_url)
        # The first tick gives the server its number; without one it can admit nothing.
        await parts.cluster_manager.tick()
        spare_the_collector()
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        await _run(Api(parts, options.certificate), parts, sock, stop, ready)


class Api(HttpServer):
    """The HTTP server, without signal handlers: those are the launcher's."""

    def __init__(self, parts: Parts, certificate: Certificate | None = None) -> None:
        door = Door(create_app(parts), parts.settings.requests, HEADERS, RateGate(parts))
        super().__init__(
            uvicorn.Config(
                door,
                http=GatedHttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=CLOSING,
                ssl_certfile=certificate.chain if certificate else None,
                ssl_keyfile=certificate.key if certificate else None,
            )
        )
        door.watch(self.server_state.connections)
        self.is_listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self.is_listening.set()

    async def run_until(self, stop: asyncio.Event, sock: socket.socket) -> None:
        """Serve until `stop` is set, then let open requests end."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self.serve(sockets=[sock]))
            stopping = group.create_task(stop.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            self.end()
            await serving
            stopping.cancel()


async def _finish(parts: Parts, loops: Sequence[asyncio.Task[None]]) -> None:
    """End the loops between two ticks: a commit that is under way is not broken off.

    Only what the database keeps waiting for too long is.
    """
    for service in parts.services:
        service.finish()
    await asyncio.wait(loops, timeout=CLOSING)
    for loop in loops:
        loop.cancel()
    await parts.timeouts.close(CLOSING)


async def _run(
    api: Api,
    parts: Parts,
    sock: socket.socket,
    stop: asyncio.Event,
    ready: Callable[[Parts], None],
) -> None:
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(service.run()) for service in parts.services]
        serving = group.create_task(api.run_until(stop, sock))
        listening = group.create_task(api.is_listening.wait())
        await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
        if api.is_listening.is_set():
            ready(parts)
        await serving
        await _finish(parts, loops)
        listening.cancel()
    try:
        async with asyncio.timeout(CLOSING):
            await parts.cluster_manager.stop()
    except (Unavailable, TimeoutError) as error:
        log.warning("could not resign: %s", error or "PostgreSQL did not answer in time")
