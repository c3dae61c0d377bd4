"""Slow readers of large downloads only block downloads of their own tenant."""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import ASGIApp

from duly.api.app import SECURITY_HEADERS, create_app
from duly.api.limits import load_shedding
from duly.api.limits.load_shedding import LoadShedder
from duly.config import RequestSettings, Settings
from duly.errors import Unauthenticated
from duly.model.tenant import Scope
from duly.server.components import MAX_DOWNLOADS_PER_TENANT
from duly.store.accounts import tenants
from duly.store.database import Database
from tests.api.conftest import Agent, Api

DATA = os.urandom(8 * 2**20)
"""More than the sockets between two processes hold."""
PATH = f"/v1/artifacts/{hashlib.sha256(DATA).hexdigest()}"
FEW = 3


@pytest.fixture
def settings() -> Settings:
    return Settings(requests=RequestSettings(open_limit=FEW))


@pytest.fixture
async def stranger(real: Api, dsn: str) -> AsyncIterator[Api]:
    """Somebody of another tenant, over HTTP."""
    async with await Database.connect(dsn) as database, database.connection() as conn:
        await conn.execute("insert into tenants (name, plan) values ('acme', 'unlimited')")
        key = await tenants.create_key(conn, "acme", "kim", [Scope.SUBMIT, Scope.READ])
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=real.client.base_url, headers=headers) as client:
        yield Api(client)


@asynccontextmanager
async def slow_reader(served: tuple[str, str]) -> AsyncIterator[int]:
    """Ask for the artifact and read the head of the answer alone; its status."""
    url, key = served
    address = urlsplit(url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    writer.write(f"GET {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n".encode())
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n")
    yield int(head.split()[1])
    writer.transport.abort()


async def test_slow_readers_of_one_tenant_keep_no_other_out(
    served: tuple[str, str], real: Api, stranger: Api
) -> None:
    for one in (real, stranger):
        assert (await one.call("PUT", PATH, content=DATA)).status_code == 201
    async with AsyncExitStack() as readers:
        for _ in range(MAX_DOWNLOADS_PER_TENANT):
            assert await readers.enter_async_context(slow_reader(served)) == 200
        status, error = await real.refused("GET", PATH)
        assert (status, error["code"], "already" in error["message"]) == (503, "unavailable", True)
        # There are more of them than may be open at once, and than there are connections.
        assert MAX_DOWNLOADS_PER_TENANT > FEW
        for one in (stranger, real):
            await one.submit()
        assert (await stranger.call("GET", PATH)).content == DATA
    async with asyncio.timeout(30):
        while (answer := await real.call("GET", PATH)).status_code == 503:
            await asyncio.sleep(0.01)
    assert answer.content == DATA


async def test_what_takes_long_to_hand_out_has_a_room_of_its_own(
    api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_shedding, "MAX_CONCURRENT_DOWNLOADS", 1)
    app = LoadShedder(create_app(api.components), settings.requests, SECURITY_HEADERS)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(
        transport=transport, base_url="http://duly.test", headers=api.client.headers
    )
    door = Api(client, api.components)
    assert (await door.call("PUT", PATH, content=DATA)).status_code == 201
    task = (await door.submit())["id"]
    taken, go_on = asyncio.Event(), asyncio.Event()
    answered = asyncio.create_task(_download(app, api.client.headers, taken, go_on))
    async with asyncio.timeout(30):
        await taken.wait()
    for path in (PATH, f"/v1/tasks/{task}/logs", f"/v1/jobs/{task}/logs"):
        status, error = await door.refused("GET", path)
        assert (status, error["details"]) == (503, {"retry_after": 2.0})
    for path in ("/v1/artifacts", f"/v1/tasks/{task}"):
        assert (await door.call("GET", path)).status_code == 200
    assert (await door.call("HEAD", PATH)).status_code == 200
    go_on.set()
    assert await answered == len(DATA)
    assert (await door.call("GET", f"/v1/tasks/{task}/logs")).status_code == 200


@pytest.mark.parametrize("kind", ["artifact", "log", "followed log"])
async def test_nothing_more_of_a_download_is_sent_to_a_key_that_was_revoked(
    api: Api, agent: Agent, kind: str
) -> None:
    path, query = PATH, b"follow=true" if kind == "followed log" else b""
    if kind == "artifact":
        assert (await api.call("PUT", PATH, content=DATA)).status_code == 201
    else:
        path = f"/v1/tasks/{(await api.submit())['id']}/logs"
        ref = await agent.start()
        for offset in range(0, 100, 10):
            assert (await agent.log(ref, offset, b"ten bytes\n")).status_code == 204
    lent = (await api.call("POST", "/v1/keys", json={"service": "s", "scopes": ["read"]})).json()
    guest = api.with_key(lent["key"])
    taken, go_on = asyncio.Event(), asyncio.Event()
    app = create_app(api.components)
    sent: list[int] = []
    answered = asyncio.create_task(
        _download(app, guest.client.headers, taken, go_on, path, query, sent)
    )
    async with asyncio.timeout(30):
        await taken.wait()
        await api.call("DELETE", f"/v1/keys/{lent['id']}")
        while (await guest.call("GET", "/v1/limits")).status_code != 401:
            await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(Unauthenticated):
        await answered
    assert len(sent) == 1
    assert api.components.downloads.used == {}


async def test_logs_and_artifacts_share_what_a_tenant_may_read_at_once(api: Api) -> None:
    assert (await api.call("PUT", PATH, content=DATA)).status_code == 201
    task = (await api.submit())["id"]
    with ExitStack() as readers:
        for _ in range(MAX_DOWNLOADS_PER_TENANT):
            readers.enter_context(api.components.downloads.acquired(1))
        for path in (PATH, f"/v1/tasks/{task}/logs"):
            assert (await api.refused("GET", path))[0] == 503
        assert (await api.call("HEAD", PATH)).status_code == 200
    assert (await api.call("GET", f"/v1/tasks/{task}/logs")).status_code == 200


async def _download(
    app: ASGIApp,
    headers: httpx.Headers,
    taken: asyncio.Event,
    go_on: asyncio.Event,
    path: str = PATH,
    query: bytes = b"",
    sent: list[int] | None = None,
) -> int:
    """Take the first bytes of what is at `path`, and the others later; return how many.

    `sent` gets the size of each part as it comes, also of an answer that breaks off.
    """
    over, sizes = asyncio.Event(), [] if sent is None else sent

    async def receive() -> dict[str, object]:
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message.get("body"):
            sizes.append(len(message["body"]))
        if sizes:
            taken.set()
            await go_on.wait()
        if message.get("more_body") is False:
            over.set()

    request = httpx.Request("GET", f"http://duly.test{path}", headers=headers)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "server": ("duly.test", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    async with asyncio.timeout(30):
        await app(scope, receive, send)
    return sum(sizes)
