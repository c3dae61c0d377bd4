"""Load shedding refuses requests before reading them, with a Retry-After header."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from duly.api.app import SECURITY_HEADERS, create_app
from duly.api.limits.load_shedding import LoadShedder
from duly.config import RequestSettings, Settings
from tests.api.conftest import Api

MEGABYTE = 2**20


@pytest.fixture
def settings() -> Settings:
    return Settings(
        requests=RequestSettings(
            open_limit=3,
            waiting_limit=5,
            body_limit=MEGABYTE,
            batch_limit=2 * MEGABYTE,
            bodies_limit=4 * MEGABYTE,
        )
    )


@pytest.fixture
async def door(api: Api, settings: Settings) -> Api:
    """The API as a server has it, behind its door."""
    app = LoadShedder(create_app(api.components), settings.requests, SECURITY_HEADERS)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(
        transport=transport, base_url="http://duly.test", headers=api.client.headers
    )
    return Api(client, api.components)


@pytest.fixture
async def other(door: Api) -> dict[str, str]:
    """What a caller of another tenant sends along."""
    await door.call("POST", "/v1/tenants", json={"name": "other", "plan": "unlimited"})
    asked = {"name": "kim", "scopes": ["submit", "read"]}
    answer = await door.call("POST", "/v1/keys?tenant=other", json=asked)
    return {"authorization": f"Bearer {answer.json()['key']}"}


async def slow(sent: asyncio.Event, go_on: asyncio.Event, first: bytes) -> AsyncIterator[bytes]:
    yield first
    sent.set()
    await go_on.wait()
    yield b'"true"]}'


async def sent_or_answered(
    begun: list[asyncio.Event], asked: list[asyncio.Task[httpx.Response]]
) -> None:
    """Wait until each request has sent what it sends for now, or has its answer."""
    async with asyncio.timeout(10):
        while not all(map(lambda sent, one: sent.is_set() or one.done(), begun, asked)):
            await asyncio.sleep(0.01)


async def refused(door: Api, method: str, path: str, **options: object) -> str:
    status, error = await door.refused(method, path, **options)
    assert (status, error["code"]) == (503, "unavailable")
    assert error["details"]["retry_after"] in (1.0, 2.0)
    return error["message"]


async def test_as_many_requests_as_there_is_room_for(door: Api) -> None:
    go_on, first, second = asyncio.Event(), asyncio.Event(), asyncio.Event()
    body = b'{"command":['
    asked = [
        asyncio.create_task(door.call("POST", "/v1/tasks", content=slow(sent, go_on, body)))
        for sent in (first, second)
    ]
    await first.wait()
    await second.wait()
    assert "as many requests" in await refused(door, "GET", "/v1/tasks")
    answer = await door.call("GET", "/v1/tasks")
    assert answer.headers["retry-after"] == "2"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await door.call("GET", "/healthz")).status_code == 200
    # Nodes come in by another door: this one is turned away by its key alone.
    assert (await door.call("POST", "/v1/gateway/poll")).status_code == 401
    go_on.set()
    assert [(await one).status_code for one in asked] == [201, 201]
    assert (await door.call("GET", "/v1/tasks")).status_code == 200


async def test_a_tenant_whose_bodies_do_not_come_leaves_room_for_others(
    door: Api, other: dict[str, str]
) -> None:
    go_on = asyncio.Event()
    begun = [asyncio.Event() for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(
                door.call("POST", "/v1/tasks", content=slow(sent, go_on, b'{"command":['))
            )
            for sent in begun
        ]
        await sent_or_answered(begun, asked)
        assert (await door.call("GET", "/v1/tasks", headers=other)).status_code == 200
        for one in asked:
            one.cancel()


async def test_callers_without_a_key_leave_room_for_those_with_one(door: Api) -> None:
    go_on = asyncio.Event()
    begun = [asyncio.Event() for _ in range(3)]
    anyone = {"authorization": "Bearer unknown"}
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(
                door.call("POST", "/v1/login", content=slow(sent, go_on, b"{"), headers=anyone)
            )
            for sent in begun
        ]
        await sent_or_answered(begun, asked)
        assert (await door.call("GET", "/v1/tasks")).status_code == 200
        for one in asked:
            one.cancel()


async def test_who_waits_keeps_nobody_else_out(door: Api) -> None:
    task = (await door.submit())["id"]
    waiting = [asyncio.create_task(door.get(f"/v1/tasks/{task}?wait=20")) for _ in range(3)]
    async with asyncio.timeout(10):
        while door.components.wakeups.listener_count < 3:
            await asyncio.sleep(0.01)
    await refused(door, "GET", f"/v1/tasks/{task}?wait=20")
    await refused(door, "GET", f"/v1/tasks/{task}/logs?follow=true")
    assert (await door.get(f"/v1/tasks/{task}"))["status"] == "waiting"
    assert (await door.call("POST", f"/v1/tasks/{task}/cancel")).status_code == 200
    assert {one["status"] for one in await asyncio.gather(*waiting)} == {"cancelled"}


async def test_a_tenant_that_waits_for_much_leaves_room_for_others(door: Api) -> None:
    task = (await door.submit())["id"]
    waiting = [asyncio.create_task(door.get(f"/v1/tasks/{task}?wait=20")) for _ in range(3)]
    async with asyncio.timeout(10):
        while door.components.wakeups.listener_count < 3:
            await asyncio.sleep(0.01)
    assert "as many" in await refused(door, "GET", f"/v1/tasks/{task}?wait=20")
    assert "as many" in await refused(door, "GET", f"/v1/tasks/{task}/logs?follow=true")
    await door.call("POST", "/v1/tenants", json={"name": "other", "plan": "unlimited"})
    asked = {"command": ["true"], "run_at": "2100-01-01T00:00:00Z"}
    answer = await door.call("POST", "/v1/tasks?tenant=other", json=asked)
    theirs = f"/v1/tasks/{answer.json()['id']}?tenant=other"
    assert (await door.get(f"{theirs}&wait=0.01"))["status"] == "scheduled"
    assert (await door.call("POST", f"/v1/tasks/{task}/cancel")).status_code == 200
    await asyncio.gather(*waiting)
    assert door.components.waits.used == {}


async def test_as_many_bytes_as_there_is_room_for(door: Api) -> None:
    go_on, sent = asyncio.Event(), asyncio.Event()
    first = b" " * (2 * MEGABYTE - 100) + b'{"tasks":[],"x":['
    path = "/v1/tasks/batch"
    asked = asyncio.create_task(door.call("POST", path, content=slow(sent, go_on, first)))
    await sent.wait()
    # Announced, and not even begun to be read; or counted as it comes.
    assert "no memory left" in await refused(door, "POST", "/v1/tasks", content=b" " * 1000)
    more = slow(asyncio.Event(), go_on, b" " * 1000)
    async with asyncio.timeout(10):
        status, error = await door.refused("POST", "/v1/tasks", content=more)
    assert (status, error["code"]) == (503, "unavailable")
    assert (await door.call("GET", "/v1/tasks")).status_code == 200
    go_on.set()
    assert (await asked).status_code == 422
    assert (await door.submit())["status"] == "waiting"


async def test_a_tenant_that_sends_much_leaves_room_for_others(
    door: Api, other: dict[str, str]
) -> None:
    go_on = asyncio.Event()
    begun = [asyncio.Event() for _ in range(2)]
    first, path = b" " * (2 * MEGABYTE - 100), "/v1/tasks/batch"
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(door.call("POST", path, content=slow(sent, go_on, first)))
            for sent in begun
        ]
        await sent_or_answered(begun, asked)
        task = b'{"command":["true"]}'.ljust(MEGABYTE // 2)
        answer = await door.call("POST", "/v1/tasks", content=task, headers=other)
        assert answer.status_code == 201
        for one in asked:
            one.cancel()


async def test_what_is_too_large_for_any_time_is_told_so(door: Api) -> None:
    status, error = await door.refused("POST", "/v1/tasks/batch", content=b" " * 3 * MEGABYTE)
    assert (status, error["code"]) == (413, "too_large")


async def test_memory_is_claimed_by_what_a_body_is_decoded_to(api: Api) -> None:
    limits = RequestSettings(memory_limit=40_000)
    app = LoadShedder(create_app(api.components), limits, SECURITY_HEADERS)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(
        transport=transport, base_url="http://duly.test", headers=api.client.headers
    )
    door, task = Api(client, api.components), {"command": ["true"]}
    for _ in range(3):
        # Half of it is all that one tenant may have.
        large = {"command": ["true", "a" * 2000]}
        assert "no memory left" in await refused(door, "POST", "/v1/tasks", json=large)
        many = {"tasks": [task] * 20}
        assert "no memory left" in await refused(door, "POST", "/v1/tasks/batch", json=many)
        assert (await door.call("POST", "/v1/tasks", json=task)).status_code == 201
        few = {"tasks": [task] * 5}
        assert (await door.call("POST", "/v1/tasks/batch", json=few)).status_code == 201
