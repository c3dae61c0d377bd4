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
from duly.server import components as server_components
from duly.server.components import Components
from duly.store.accounts import tenants
from duly.store.database import Database


@pytest.fixture
def settings() -> Settings:
    """The settings of the server; a module may override the fixture."""
    return Settings()


@pytest.fixture
async def components(
    database: Database, settings: Settings, tmp_path: Path
) -> AsyncIterator[Components]:
    """A server's components, with all of their loops running."""
    built = server_components.build(database, settings, str(tmp_path / "store"))
    await built.cluster_manager.tick()
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(service.run()) for service in built.services]
        yield built
        for loop in loops:
            loop.cancel()


class Api:
    """A client of the API with one key."""

    def __init__(self, client: httpx.AsyncClient, components: Components | None = None) -> None:
        self.client = client
        self.components = components

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request and return the response."""
        return await self.client.request(method, path, **options)

    async def get(self, path: str, **options: Any) -> Any:
        """Return the JSON at `path`, which must exist."""
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
        """Return a client of the same API with another key."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        client = httpx.AsyncClient(
            transport=self.client._transport, base_url=self.client.base_url, headers=headers
        )
        return Api(client, self.components)


@pytest.fixture(scope="session")
def app() -> Application:
    """The application, which is built once since that takes 0.1 s; tests set its components."""
    return create_app(cast("Components", None))


@pytest.fixture
async def api(app: Application, components: Components) -> AsyncIterator[Api]:
    """A client with an administrator's key, in process."""
    app.components = components
    async with components.database.connection() as conn:
        key = await tenants.create_admin_key(conn)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://duly.test", headers=headers
    ) as client:
        yield Api(client, components)


@pytest.fixture
async def real(served: tuple[str, str]) -> AsyncIterator[Api]:
    """A client with an administrator's key, over HTTP."""
    url, key = served
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
        yield Api(client)


@pytest.fixture
async def key_for(components: Components) -> Callable[..., Awaitable[str]]:
    """Create a key for a user of a tenant; both are created if they do not exist."""

    async def make(tenant: str, user: str, *scopes: Scope) -> str:
        async with components.database.connection() as conn:
            await conn.execute(
                "insert into tenants (name, plan) values ($1, 'unlimited') on conflict do nothing",
                tenant,
            )
            return await tenants.create_key(conn, tenant, user, scopes)

    return make


@pytest.fixture
async def stranger(api: Api, key_for: Callable[..., Awaitable[str]]) -> Api:
    """A client of another tenant, with the scopes submit and read."""
    return api.with_key(await key_for("acme", "kim", Scope.SUBMIT, Scope.READ))


@pytest.fixture
def served(dsn: str, settings: Settings, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server in a thread, on a free port; returns its URL and an administrator's key."""
    loop: Any = None
    stop: Any = None
    started = threading.Event()
    shared: dict[str, Any] = {}

    async def run() -> None:
        nonlocal loop, stop
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        sock = listen("127.0.0.1", 0)
        shared["url"] = f"http://127.0.0.1:{sock.getsockname()[1]}"

        def ready(components: Components) -> None:
            shared["components"] = components
            started.set()

        await serve(
            ServeOptions(dsn, str(tmp_path / "store"), settings=settings), stop, ready, sock
        )

    async def make_key() -> str:
        async with shared["components"].database.connection() as conn:
            return await tenants.create_admin_key(conn)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert started.wait(20)
    yield shared["url"], asyncio.run_coroutine_threadsafe(make_key(), loop).result(10)
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)


class Agent:
    """A scripted node that uses the same routes as a real agent."""

    def __init__(self, api: Api, joined: wire.JoinResponse) -> None:
        self.api = api
        self.joined = joined

    async def send(self, path: str, message: Any) -> httpx.Response:
        """Send a message to the gateway."""
        return await self.api.call("POST", f"/v1/gateway/{path}", content=wire.encode(message))

    async def poll(self, held: list[wire.AttemptRef] | None = None) -> wire.PollResponse:
        """Poll until there are orders."""
        answer = await self.send(
            "poll", wire.PollRequest(incarnation=self.joined.incarnation, held=held or [], wait=10)
        )
        assert answer.status_code == 200, answer.text
        return wire.decode(answer.content, wire.PollResponse)

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
        """Register a key for an attempt of this node, and return it."""
        key = attempt_key.mint(ref.task, ref.attempt, ref.token)
        message = wire.AttemptKeyRegistration(ref=ref, digest=attempt_key.digest(key))
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
        """Report the outcome of an attempt; return whether it was accepted."""
        report = wire.AttemptReport(
            ref=ref,
            outcome=outcome,
            exit_code=exit_code,
            reason=None if exit_code == 0 else Reason("exit_code", f"Exit code {exit_code}."),
            ran=0.5,
            usage=Usage(0.25, 12.5, 0.5),
            tail=log[-wire.MAX_LOG_TAIL_BYTES :],
            log_size=len(log),
            result=result,
            result_limit=result_limit,
        )
        answer = await self.send(
            "report", wire.ReportRequest(incarnation=self.joined.incarnation, reports=[report])
        )
        assert answer.status_code == 200, answer.text
        return wire.decode(answer.content, wire.ReportResponse).accepted[0]


Join = Callable[..., Awaitable[Agent]]


@pytest.fixture
def join_over() -> Join:
    """Return a function that joins a scripted node through a given client."""

    async def join(
        api: Api, name: str = "node-a", cpu: float = 4, enforcement: dict[str, str] | None = None
    ) -> Agent:
        answer = await api.call("POST", "/v1/node-tokens", json={"expires_in": "1h"})
        capacity = Resources(cpu_milli=int(cpu * 1000), memory_mb=8192, disk_mb=8192)
        asked = wire.JoinRequest(
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
        joined = wire.JoinResponse(**answer.json())
        return Agent(api.with_key(asked.key), joined)

    return join


@pytest.fixture
def join(api: Api, join_over: Join) -> Join:
    """Return a function that joins a scripted node."""
    return partial(join_over, api)


@pytest.fixture
async def agent(join: Join) -> Agent:
    """A scripted node with four cores."""
    return await join()
