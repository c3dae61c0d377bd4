"""Routes that are called without the framework answer exactly as with it."""

import httpx
import pytest
from litestar import Litestar

from duly import telemetry
from duly.api.app import create_app

BODY = b'{"command": ["true"], "no such field": 1'


@pytest.fixture
def both(api, app):
    """The same API twice: with its straight ways, and by the framework alone."""

    async def around(scope, receive, send):
        await Litestar.__call__(app, scope, receive, send)

    def client(one):
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(one, raise_app_exceptions=False),
            base_url="http://duly.test",
        )

    return client(app), client(around)


def told(answer):
    return answer.status_code, sorted(answer.headers.items()), answer.content


def test_every_path_without_parameters_has_one():
    app = create_app(None)
    fixed = {
        (method, route.path)
        for route in app.routes
        for method in route.methods - {"OPTIONS"}
        if "{" not in route.path
    }
    assert set(app.ways) == fixed
    assert {("POST", "/v1/tasks"), ("POST", "/v1/jobs"), ("POST", "/v1/gateway/poll")} <= fixed


async def test_what_is_refused_is_refused_in_the_same_words(app, api, both):
    key = api.client.headers["authorization"]
    callers = ({}, {"authorization": "Bearer nonsense"}, {"authorization": key})
    for method, path in app.ways:
        for headers in callers:
            if method == "GET" and headers == callers[-1]:
                continue
            asked = [await one.request(method, path, headers=headers, content=BODY) for one in both]
            assert told(asked[0]) == told(asked[1]), (method, path)
    for method, path in (("PUT", "/v1/tasks"), ("OPTIONS", "/v1/tasks"), ("GET", "/v1/tasks/")):
        asked = [await one.request(method, path, headers=callers[-1]) for one in both]
        assert told(asked[0]) == told(asked[1]), (method, path)


async def test_what_is_answered_has_the_same_headers_and_is_counted(api, both):
    headers = {"authorization": api.client.headers["authorization"]}
    before = counted()
    straight, around = [
        await one.post("/v1/tasks", headers=headers, json={"command": ["true"]}) for one in both
    ]
    assert straight.status_code == around.status_code == 201
    assert straight.headers.keys() == around.headers.keys()
    assert straight.json().keys() == around.json().keys()
    assert counted() == before + 2


async def test_a_failure_nobody_expected_tells_nothing(api, both, parts):
    headers = {"authorization": api.client.headers["authorization"]}
    async with parts.database.connection() as conn:
        await conn.execute("alter table nodes rename to secret_nodes")
    asked = [await one.get("/v1/nodes", headers=headers) for one in both]
    assert told(asked[0]) == told(asked[1])
    assert asked[0].status_code == 500
    assert b"secret" not in asked[0].content


def counted():
    labels = {"method": "POST", "route": "/v1/tasks", "status": "2xx"}
    return telemetry.REGISTRY.get_sample_value("duly_http_requests_total", labels) or 0
