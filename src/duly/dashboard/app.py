"""The pages as a process: an API client on one side, a browser on the other.

The API key stays on this side. The browser gets drawings and a session cookie.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import uvicorn

from duly.client.aio import AsyncClient
from duly.client.retry import Patience
from duly.dashboard.access import App, Gate
from duly.dashboard.feed import Feed
from duly.http_limits import LimitedHttp
from duly.http_server import HttpServer

INTERVAL = timedelta(seconds=2)
IMPATIENT = Patience(total=timedelta(0))
"""No repetition inside a call: the page itself asks again, and says meanwhile what is wrong."""


def run(url: str, key: str, host: str, port: int, token: str) -> None:
    """Serve the overview on `host` and `port` until stopped; `token` opens it, once."""
    # NiceGUI decides at import where it would keep files. We keep none, and it must not look for
    # any in whatever folder the process was started from: nothing can be below this one.
    os.environ["NICEGUI_STORAGE_PATH"] = f"{os.devnull}/nicegui"
    os.environ.pop("NICEGUI_REDIS_URL", None)
    config = uvicorn.Config(
        Gate(_pages(url, key), token, host, port),
        host=host,
        port=port,
        http=LimitedHttp,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    HttpServer(config).run()


def _pages(url: str, key: str) -> App:
    # Here, because importing NiceGUI takes a second and begins to act on the environment.
    from fastapi import FastAPI
    from nicegui import ui

    from duly.dashboard.pages import Overview

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncClient(url, key, patience=IMPATIENT) as client:
            feed = Feed(client, INTERVAL)

            def overview() -> None:
                page = Overview(feed)
                ui.timer(INTERVAL.total_seconds(), page.refresh)

            ui.page("/", title="Duly", dark=None)(overview)
            yield

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    ui.run_with(
        app,
        title="Duly",
        tailwind=False,
        gzip_middleware_factory=None,
        binding_refresh_interval=None,
        show_welcome_message=False,
    )
    return app
