"""Runs a server: the loops of its components, and the API."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from uuid import UUID

import uvicorn

from duly.api.app import SECURITY_HEADERS, create_app
from duly.api.limits.load_shedding import LoadShedder
from duly.api.limits.rate_gate import RateGate
from duly.config import Settings
from duly.errors import ConfigError, Unavailable
from duly.http.early_refusal import GatedHttpProtocol
from duly.http.server import HttpServer
from duly.launch.event_loop import tune_garbage_collector
from duly.launch.local.ports import url_of
from duly.launch.tls import Certificate
from duly.server import components as server_components
from duly.server.components import Components
from duly.server.offload import SWITCH_INTERVAL_SECONDS
from duly.store.database import Database

log = logging.getLogger(__name__)
SHUTDOWN_TIMEOUT_SECONDS = 5
"""Time limit for open requests, for component loops, and for resigning, each."""


@dataclass(frozen=True)
class ServeOptions:
    """The options of a server; `dsn` is a secret and never logged."""

    dsn: str = field(repr=False)
    store_url: str
    host: str = "127.0.0.1"
    port: int = 8470
    settings: Settings = field(default_factory=Settings)
    certificate: Certificate | None = None
    """The TLS certificate; without one, the server speaks plain HTTP."""
    store_id: UUID | None = None
    """The mark of the object store, which is then watched."""


def listen(host: str, port: int) -> socket.socket:
    """Bind the port before anything else, so that a conflict is reported at once."""
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


def advertised_url(options: ServeOptions, sock: socket.socket) -> str:
    """Return the URL of a server for operators; the machine's name if it listens everywhere."""
    host = socket.gethostname() if options.host in ("", "0.0.0.0", "::") else options.host  # noqa: S104
    scheme = "https" if options.certificate else "http"
    return url_of(host, sock.getsockname()[1], scheme=scheme)


async def serve(
    options: ServeOptions,
    stop: asyncio.Event,
    ready: Callable[[Components], None],
    sock: socket.socket | None = None,
) -> None:
    """Run a server until `stop` is set; call `ready` once it accepts requests."""
    sock = sock or listen(options.host, options.port)
    async with AsyncExitStack() as stack:
        stack.callback(sock.close)
        database = await Database.connect(options.dsn, options.settings.database)
        stack.push_async_callback(database.close)
        components = server_components.build(
            database, options.settings, options.store_url, options.store_id
        )
        components.cluster_manager.advertise(advertised_url(options, sock))
        # The first tick registers the server's number, which is needed to generate task ids.
        await components.cluster_manager.tick()
        tune_garbage_collector()
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        await _run(Api(components, options.certificate), components, sock, stop, ready)


class Api(HttpServer):
    """The HTTP server of the API."""

    def __init__(self, components: Components, certificate: Certificate | None = None) -> None:
        load_shedder = LoadShedder(
            create_app(components),
            components.settings.requests,
            SECURITY_HEADERS,
            RateGate(components),
        )
        super().__init__(
            uvicorn.Config(
                load_shedder,
                http=GatedHttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS,
                ssl_certfile=certificate.chain if certificate else None,
                ssl_keyfile=certificate.key if certificate else None,
            )
        )
        load_shedder.watch(self.server_state.connections)
        self._components = components
        self.is_listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and set `is_listening`."""
        await super().startup(sockets)
        self.is_listening.set()

    async def run_until(self, stop: asyncio.Event, sock: socket.socket) -> None:
        """Serve until `stop` is set, then finish open requests; those that wait end at once."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self.serve(sockets=[sock]))
            stopping = group.create_task(stop.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            self._components.wakeups.close()
            self._components.polls.close()
            self.stop()
            await serving
            stopping.cancel()


async def _finish(components: Components, loops: Sequence[asyncio.Task[None]]) -> None:
    """Stop the loops between two ticks, so that no commit is interrupted.

    A tick that waits too long for the database is cancelled.
    """
    for service in components.services:
        service.finish()
    await asyncio.wait(loops, timeout=SHUTDOWN_TIMEOUT_SECONDS)
    for loop in loops:
        loop.cancel()
    await components.timeouts.close(SHUTDOWN_TIMEOUT_SECONDS)


async def _run(
    api: Api,
    components: Components,
    sock: socket.socket,
    stop: asyncio.Event,
    ready: Callable[[Components], None],
) -> None:
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(service.run()) for service in components.services]
        serving = group.create_task(api.run_until(stop, sock))
        listening = group.create_task(api.is_listening.wait())
        await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
        if api.is_listening.is_set():
            ready(components)
        await serving
        await _finish(components, loops)
        listening.cancel()
    try:
        async with asyncio.timeout(SHUTDOWN_TIMEOUT_SECONDS):
            await components.cluster_manager.stop()
    except (Unavailable, TimeoutError) as error:
        log.warning(
            "could not resign its duties: %s", error or "PostgreSQL did not respond in time"
        )
