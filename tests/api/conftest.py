"""The API over real components and a real database, called in process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest

from duly import wire
from duly.api.app import Application, create_app
from duly.config import Settings
from duly.launch.serve import ServeOptions, listen, serve
from duly.model import attempt_key
from duly.model.resources import Resources
from duly.model.task import Outcome, Reason, Usage
from duly.model.tenant import Scope
from duly.server import parts as server_parts
from duly.server.parts import Parts
from duly.store import tenants
from duly.store.database import Database


@pytest.fixture
def settings() -> Settings:
    """What the server is started with; a module may replace it."""
    return Settings()


@pytest.fixture
async def parts(database: Database, settings: Settings, tmp_path: Path) -> AsyncIterator[Parts]:
    """A server's components, with all of their loops running."""
    built = server_parts.build(database, settings, str(tmp_path / "store"))
    await built.cluster_manager.tick()
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(service.run()) for service in built.services]
        yield built
        for loop in loops:
            loop.cancel()


class Api:
    """A caller with a key."""

    def __init__(self, client: httpx.AsyncClient, parts: Parts | None = None) -> None:
        self.client = client
        self.parts = parts

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request and return the answer."""
        return await self.client.request(method, path, **options)

    async def get(self, path: str, **options: Any) -> Any:
        """Return the JSON at `path`, which must be there."""
        answer = await self.call("GET", path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def submit(self, **task: Any) -> dict[str, Any]:
        """Submit a task, which must be new."""
        answer = await self.call("POST", "/v1/tasks", json={"command": ["true"], **task})
        assert answer.status_code == 201, answer.text
        task_answer: dict[str, Any] = answer.json()
        return task_answer

    async def refused(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the error of a request that must be refused."""
        answer = await self.call(method, path, **options)
        assert answer.status_code >= 400, answer.text
        assert answer.headers["content-type"] == "application/json"
        assert answer.json().keys() == {"error"}
        assert answer.json()["error"].keys() == {"code", "message", "details"}
        return answer.status_code, answer.json()["error"]

    def with_key(self, key: str | None) -> "Api":
        """Return the same API for the holder of another key."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        client = httpx.AsyncClient(
            transport=self.client._transport, base_url=self.client.base_url, headers=headers
        )
        return Api(client, self.parts)


@pytest.fixture(scope="session")
def app() -> Application:
    """The API over whatever components a test gives it: putting it together takes 0.1 s."""
    return create_app(cast("Parts", None))


@pytest.fixture
async def api(app: Application, parts: Parts) -> AsyncIterator[Api]:
    """The API for an administrator."""
    app.parts = parts
    async with parts.database.connection() as conn:
        key = await tenants.create_admin_key(conn)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://duly.test", headers=headers
    ) as client:
        yield Api(client, parts)


@pytest.fixture
async def real(served: tuple[str, str]) -> AsyncIterator[Api]:
    """The API for an administrator, over HTTP."""
    url, key = served
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
        yield Api(client)


@pytest.fixture
async def key_for(parts: Parts) -> Callable[..., Awaitable[str]]:
    """Make a key for a user of a tenant, which is made too if it does not exist."""

    async def make(tenant: str, user: str, *scopes: Scope) -> str:
        async with parts.database.connection() as conn:
            await conn.execute(
                "insert into tenants (name, plan) values ($1, 'unlimited') on conflict do nothing",
                tenant,
            )
            return await tenants.create_key(conn, tenant, user, scopes)

    return make


@pytest.fixture
async def stranger(api: Api, key_for: Callable[..., Awaitable[str]]) -> Api:
    """The API for somebody of another tenant, who may submit and read there."""
    return api.with_key(await key_for("acme", "kim", Scope.SUBMIT, Scope.READ))


@pytest.fixture
def served(dsn: str, settings: Settings, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A whole server on a port of its own, in a thread of its own; its URL and a key."""
    loop: Any = None
    stop: Any = None
    started = threading.Event()
    told: dict[str, Any] = {}

    async def run() -> None:
        nonlocal loop, stop
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        sock = listen("127.0.0.1", 0)
        told["url"] = f"http://127.0.0.1:{sock.getsockname()[1]}"

        def ready(parts: Parts) -> None:
            told["parts"] = parts
            started.set()

        await serve(
            ServeOptions(dsn, str(tmp_path / "store"), settings=settings), stop, ready, sock
        )

    async def make_key() -> str:
        async with told["parts"].database.connection() as conn:
            return await tenants.create_admin_key(conn)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert started.wait(20)
    yield told["url"], asyncio.run_coroutine_threadsafe(make_key(), loop).result(10)
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)


class Agent:
    """A node that does what a test tells it, over the same routes as a real one."""

    def __init__(self, api: Api, joined: wire.Joined) -> None:
        self.api = api
        self.joined = joined

    async def send(self, path: str, message: Any) -> httpx.Response:
        """Send a message to the gateway."""
        return await self.api.call("POST", f"/v1/gateway/{path}", content=wire.encode(message))

    async def poll(self, held: list[wire.AttemptRef] | None = None) -> wire.Orders:
        """Ask for orders and wait for some."""
        answer = await self.send(
            "poll", wire.Poll(incarnation=self.joined.incarnation, held=held or [], wait=10)
        )
        assert answer.status_code == 200, answer.text
        return wire.decode(answer.content, wire.Orders)

    async def start(self) -> wire.AttemptRef:
        """Take the next attempt."""
        return (await self.poll()).start[0].ref

    async def log(self, ref: wire.AttemptRef, offset: int, data: bytes) -> httpx.Response:
        """Send part of a log."""
        return await self.send(
            "logs",
            wire.LogChunk(incarnation=self.joined.incarnation, ref=ref, offset=offset, data=data),
        )

    async def attempt_key(self, ref: wire.AttemptRef) -> str:
        """Return a key that speaks for an attempt of this node's."""
        key = attempt_key.mint(ref.task, ref.attempt, ref.token)
        message = wire.AttemptKey(ref=ref, digest=attempt_key.digest(key))
        answer = await self.send("attempt-key", message)
        assert answer.status_code == 204, answer.text
        return key

    async def finish(
        self,
        ref: wire.AttemptRef,
        outcome: Outcome = Outcome.SUCCEEDED,
        exit_code: int | None = 0,
        log: bytes = b"",
        result: bytes | None = None,
        result_limit: int | None = None,
    ) -> bool:
        """Report the end of an attempt; return whether it counts."""
        report = wire.AttemptReport(
            ref=ref,
            outcome=outcome,
            exit_code=exit_code,
            reason=None if exit_code == 0 else Reason("exit_code", f"Exit code {exit_code}."),
            ran=0.5,
            usage=Usage(0.25, 12.5, 0.5),
            tail=log[-wire.TAIL_BYTES :],
            log_size=len(log),
            result=result,
            result_limit=result_limit,
        )
        answer = await self.send(
            "report", wire.Reports(incarnation=self.joined.incarnation, reports=[report])
        )
        assert answer.status_code == 200, answer.text
        return wire.decode(answer.content, wire.Receipts).accepted[0]


Join = Callable[..., Awaitable[Agent]]


@pytest.fixture
def join_over() -> Join:
    """Let a node join over an API, and do what the test tells it."""

    async def join(
        api: Api, name: str = "node-a", cpu: float = 4, enforcement: dict[str, str] | None = None
    ) -> Agent:
        answer = await api.call("POST", "/v1/node-tokens", json={"expires_in": "1h"})
        capacity = Resources(cpu_milli=int(cpu * 1000), memory_mb=8192, disk_mb=8192)
        asked = wire.Join(
            name=name,
            capacity=wire.capacity(capacity),
            labels={"zone": "a"},
            key=tenants.generate_key("dulynode"),
            enforcement=enforcement or {"memory": "sampled"},
        )
        answer = await api.with_key(answer.json()["token"]).call(
            "POST", "/v1/nodes", content=msgspec.json.encode(asked)
        )
        assert answer.status_code == 201, answer.text
        joined = wire.Joined(**answer.json())
        return Agent(api.with_key(asked.key), joined)

    return join


@pytest.fixture
def join(api: Api, join_over: Join) -> Join:
    """Let a node join that does what the test tells it."""
    return partial(join_over, api)


@pytest.fixture
async def agent(join: Join) -> Agent:
    """A node with four cores."""
    return await join()
