import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from duly.api.app import create_app
from duly.api.error_responses import STATUSES
from duly.errors import DulyError, LimitExceeded, Unavailable

NEVER_SENT = {"config", "unstorable", "taken", "quotas_changed"}


def kinds(kind=DulyError):
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def test_every_error_that_a_request_can_meet_has_a_status():
    without = {
        kind.code
        for kind in kinds()
        # Those of the client, if it was imported, are of applications.
        if not kind.__module__.startswith("duly.client.")
        and not any(parent in STATUSES for parent in kind.__mro__)
    }
    assert without == NEVER_SENT | {"error"}


NOT_THERE = [
    ("GET", "/", 404, "not_found"),
    ("GET", "/v1", 404, "not_found"),
    ("GET", "/v1/nothing", 404, "not_found"),
    ("GET", "/v1/tasks/1/graph", 404, "not_found"),
    ("PUT", "/v1/tasks", 405, "method_not_allowed"),
    ("OPTIONS", "/v1/tasks", 405, "method_not_allowed"),
    ("TRACE", "/v1/tasks", 405, "method_not_allowed"),
    ("GET", "/v1/tasks/batch", 405, "method_not_allowed"),
    ("BREW", "/v1/tasks", 405, "method_not_allowed"),
]


async def test_what_is_not_there_is_told_in_the_same_shape(api):
    for method, path, status, code in NOT_THERE:
        refused = await api.refused(method, path)
        assert (refused[0], refused[1]["code"]) == (status, code)


async def test_every_answer_has_the_security_headers(api):
    for path in ("/v1/tasks", "/nothing", "/healthz", "/docs", "/v1/tasks/1"):
        headers = (await api.call("GET", path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


async def test_a_failure_of_our_own_tells_nothing_of_what_is_inside(api, components, caplog):
    async with components.database.connection() as conn:
        await conn.execute("alter table tasks rename to secret_tasks")
    with caplog.at_level(logging.ERROR):
        status, error = await api.refused("GET", "/v1/tasks")
    assert (status, error["code"]) == (500, "internal")
    assert "secret" not in str(error)
    assert "tasks" in caplog.text


@pytest.fixture
def raising(components):
    """Let authentication raise an error, as the rate limiter or a lost database would."""

    def raises(error):
        class Raising:
            def get_cached(self, key):
                return None

            async def authenticate(self, key):
                raise error

        app = create_app(replace(components, authenticator=Raising()))
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://duly.test")

    return raises


async def test_busy_answers_say_when_to_come_back(raising):
    for error, status, after in (
        (LimitExceeded("Limit exceeded.", timedelta(seconds=2.1)), 429, "3"),
        (Unavailable("Not now.", timedelta(milliseconds=10)), 503, "1"),
    ):
        async with raising(error) as client:
            answer = await client.get("/v1/tasks", headers={"authorization": "Bearer x"})
        assert (answer.status_code, answer.headers["retry-after"]) == (status, after)
        assert answer.json()["error"]["code"] == error.code


async def test_without_a_database_the_server_says_so(api, components):
    assert (await api.call("GET", "/readyz")).status_code == 200
    await components.database.close()
    assert (await api.call("GET", "/healthz")).status_code == 200
    status, error = await api.refused("GET", "/readyz")
    assert (status, error["code"]) == (503, "unavailable")


async def test_the_server_names_no_product(real):
    assert "server" not in (await real.call("GET", "/healthz")).headers


async def test_a_request_that_a_stopping_server_breaks_off_is_to_be_tried_again(api):
    task = (await api.submit())["id"]
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(api.call("GET", f"/v1/tasks/{task}?wait=20"))
        while not api.components.wakeups.listener_count:
            await asyncio.sleep(0)
        waiting.cancel()
    answer = waiting.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert "stopping" in answer.json()["error"]["message"]


async def test_a_stopping_server_answers_who_waits_for_a_task(api):
    task = (await api.submit())["id"]
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(api.get(f"/v1/tasks/{task}?wait=20"))
        while not api.components.wakeups.listener_count:
            await asyncio.sleep(0)
        api.components.wakeups.close()
    assert waiting.result()["status"] == "waiting"
