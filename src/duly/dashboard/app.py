"""Runs the dashboard's process: a web server for browsers, and a client of the API.

API keys stay in this process. A browser gets rendered pages and a session cookie.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import uvicorn

from duly.dashboard.login.access import SESSION, Gate
from duly.dashboard.login.authentication import Authenticator
from duly.dashboard.login.responses import App
from duly.dashboard.login.sessions import INTERVAL, Sessions
from duly.dashboard.options import PagesOptions
from duly.http.connection_limits import LimitedHttpProtocol
from duly.http.server import HttpServer


class PagesServer(HttpServer):
    """The dashboard's web server, which calls `ready` when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and call `ready`."""
        await super().startup(sockets)
        if self.started:
            self._ready()


async def serve(options: PagesOptions, ready: Callable[[], None] = lambda: None) -> None:
    """Serve the dashboard until cancelled; `ready` is called once it can be opened."""
    # NiceGUI decides at import where it would store files. We store none, and it must not look for
    # any in the working directory: nothing can exist below this path.
    os.environ["NICEGUI_STORAGE_PATH"] = f"{os.devnull}/nicegui"
    os.environ.pop("NICEGUI_REDIS_URL", None)
    sessions = Sessions()
    authenticator = Authenticator(options.url, options.ca_file, options.link)
    chain, key = options.certificate or (None, None)
    config = uvicorn.Config(
        Gate(_pages(sessions), authenticator, sessions, options.name or options.host, options.port),
        host=options.host,
        port=options.port,
        http=LimitedHttpProtocol,
        ssl_certfile=chain,
        ssl_keyfile=key,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = PagesServer(config, ready)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve())
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.stop()
            await asyncio.wait([serving])
            raise


def _pages(sessions: Sessions) -> App:
    # Imported late: importing NiceGUI takes a second and already acts on the environment.
    from fastapi import FastAPI, Request
    from nicegui import ui

    from duly.dashboard.pages import Overview

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await sessions.end_all()

    def overview(request: Request, task: str = "") -> None:
        page = Overview(request.scope[SESSION])
        ui.timer(INTERVAL.total_seconds(), page.refresh)
        if task:
            ui.timer(0, partial(page.open_task, task), once=True)

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    ui.page("/", title="Duly", dark=None)(overview)
    ui.run_with(
        app,
        title="Duly",
        tailwind=False,
        gzip_middleware_factory=None,
        binding_refresh_interval=None,
        show_welcome_message=False,
    )
    return app
