"""Long requests end when their key is revoked."""

import asyncio
import hashlib

import httpx
import pytest

from duly.api.requests import body
from duly.config import RequestSettings, Settings
from duly.model.tenant import Scope

DATA = b"x" * 100_000
HASH = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def settings():
    return Settings(requests=RequestSettings(waiting_limit=2))


async def lent(api, *scopes):
    """Return a key of a tenant `acme`, and what takes it away again."""
    await api.call("POST", "/v1/tenants", json={"name": "acme", "plan": "unlimited"})
    asked = {"tenant": "acme", "service": "s", "scopes": [str(one) for one in scopes]}
    made = (await api.call("POST", "/v1/keys", json=asked)).json()

    async def revoke():
        await api.call("DELETE", f"/v1/keys/{made['id']}?tenant=acme")
        guest = {"authorization": f"Bearer {made['key']}"}
        async with asyncio.timeout(10):
            while (await api.call("GET", "/v1/limits", headers=guest)).status_code != 401:
                await asyncio.sleep(0)

    return {"authorization": f"Bearer {made['key']}"}, revoke


async def test_nothing_more_of_a_log_is_told_to_a_key_that_was_revoked(real, join_over):
    agent = await join_over(real)
    guest, revoke = await lent(real, Scope.SUBMIT, Scope.READ)
    task = (await submit(real, guest))["id"]
    ref = await agent.start()
    path = f"/v1/tasks/{task}/logs?follow=true"
    async with real.client.stream("GET", path, headers=guest) as answer:
        text = answer.aiter_bytes()
        await agent.log(ref, 0, b"one\n")
        assert await anext(text) == b"one\n"
        await revoke()
        await agent.log(ref, 4, b"two\n")
        with pytest.raises(httpx.RemoteProtocolError):
            assert [more async for more in text] == []
    told = await real.client.get(path, headers=guest)
    assert told.status_code == 401


async def submit(api, headers):
    answer = await api.call("POST", "/v1/tasks", json={"command": ["true"]}, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_who_waits_with_a_key_that_is_revoked_is_told_so(api):
    guest, revoke = await lent(api, Scope.SUBMIT, Scope.READ)
    task = (await submit(api, guest))["id"]
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        path = f"/v1/tasks/{task}?wait=25"
        waiting = group.create_task(api.call("GET", path, headers=guest))
        while not api.components.wakeups.listener_count:
            await asyncio.sleep(0)
        await revoke()
    assert waiting.result().status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "whole"),
    [("POST", "/v1/tasks", b'{"command": ["true"]}'), ("PUT", f"/v1/artifacts/{HASH}", DATA)],
)
async def test_what_is_sent_slowly_is_refused_if_the_key_is_revoked_meanwhile(
    api, monkeypatch, method, path, whole
):
    monkeypatch.setattr(body, "RECHECK_KEY_AFTER_SECONDS", 0.0)
    guest, revoke = await lent(api, Scope.SUBMIT)

    async def slowly():
        yield whole[:10]
        await revoke()
        yield whole[10:]

    answer = await api.call(method, path, content=slowly(), headers=guest)
    assert answer.status_code == 401, answer.text
    assert (await api.get(path.removesuffix(f"/{HASH}") + "?tenant=acme"))["items"] == []


@pytest.mark.parametrize("path", ["/v1/tasks/{}?wait=25", "/v1/tasks/{}/logs?follow=true"])
async def test_what_a_client_waits_for_ends_when_it_hangs_up(real, path):
    task = (await real.submit())["id"]
    url, key = real.client.base_url, real.client.headers["authorization"]
    request = f"GET {path.format(task)} HTTP/1.1\r\nAuthorization: {key}\r\n\r\n".encode()

    async def has_room():
        asked = await real.call("GET", f"/v1/tasks/{task}?wait=0.01")
        return asked.status_code == 200

    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(request)
        # The one place of the tenant may be taken by the question whether it is.
        while await has_room():
            if reader._buffer.startswith(b"HTTP/1.1 503"):
                reader._buffer.clear()
                writer.write(request)
        writer.close()
        while not await has_room():
            await asyncio.sleep(0.01)


async def test_a_request_that_waits_takes_no_body(real):
    task = (await real.submit())["id"]
    async with asyncio.timeout(5):
        answer = await real.call("GET", f"/v1/tasks/{task}?wait=25", content=b"x" * 10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")
