"""The pages as a process: API clients on one side, browsers on the other.

The keys stay on this side. A browser gets drawings and a session cookie.
"""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import uvicorn

from duly.dashboard.access import SESSION, Gate
from duly.dashboard.answers import App
from duly.dashboard.entrance import Entrance
from duly.dashboard.options import PagesOptions
from duly.dashboard.sessions import INTERVAL, Sessions
from duly.http.limits import LimitedHttpProtocol
from duly.http.server import HttpServer


class PagesServer(HttpServer):
    """The pages' web server, which tells when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and tell so."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def run(options: PagesOptions, ready: Callable[[], None] = lambda: None) -> None:
    """Serve the pages until stopped; `ready` is called once they can be opened."""
    # NiceGUI decides at import where it would keep files. We keep none, and it must not look for
    # any in whatever folder the process was started from: nothing can be below this one.
    os.environ["NICEGUI_STORAGE_PATH"] = f"{os.devnull}/nicegui"
    os.environ.pop("NICEGUI_REDIS_URL", None)
    sessions = Sessions()
    entrance = Entrance(options.url, options.ca_file, options.link)
    chain, key = options.certificate or (None, None)
    config = uvicorn.Config(
        Gate(_pages(sessions), entrance, sessions, options.name or options.host, options.port),
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
    PagesServer(config, ready).run()


def _pages(sessions: Sessions) -> App:
    # Here, because importing NiceGUI takes a second and begins to act on the environment.
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
