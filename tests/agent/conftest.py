import asyncio
import os

import pytest
from aiohttp import web

from duly import wire
from duly.agent import gateway
from duly.agent.limits import cgroup_hierarchies
from tests.agent.node import Doorbell, new_data, running

ROOT = os.geteuid() == 0


@pytest.fixture(params=["cgroup", "uid", "shared"] if ROOT else ["shared"])
async def node(request):
    """Give a node of every kind that this user can have."""
    async with running(request.param) as node:
        if request.param == "cgroup" and not node.layout.folders:
            pytest.skip("no cgroup can be had here")
        yield node


@pytest.fixture
async def best_node():
    """Give a node as good as this user can have."""
    async with running("cgroup" if ROOT else "shared") as node:
        yield node


@pytest.fixture
def doorbell():
    folder = new_data()
    wakeups = Doorbell(folder)
    yield wakeups
    wakeups.close()
    folder.rmdir()


@pytest.fixture
def retrying_at_once(monkeypatch):
    monkeypatch.setattr(gateway, "MIN_BACKOFF_SECONDS", 0.0)


@pytest.fixture
def needs_memory_controller():
    found = cgroup_hierarchies.find("duly-test-probe")
    cgroup_hierarchies.sweep("duly-test-probe")
    if not found.limits_memory:
        pytest.skip("no memory controller can be had here")


class Answers:
    """A server that gives prepared answers, and keeps what it was sent."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[web.Response] = asyncio.Queue()
        self.seen: list[tuple[str, str, bytes]] = []
        self.url = ""

    def prepare(self, status: int, body: bytes = b"", media_type: str = wire.MEDIA_TYPE) -> None:
        self.coming.put_nowait(web.Response(status=status, body=body, content_type=media_type))

    async def answer(self, request: web.Request) -> web.Response:
        authorization = request.headers["Authorization"]
        self.seen.append((request.path, authorization, await request.read()))
        return await self.coming.get()


@pytest.fixture
async def server():
    answers = Answers()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answers.answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    answers.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield answers
    await runner.cleanup()
