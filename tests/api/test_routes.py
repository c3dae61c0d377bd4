"""Requests are routed by path and method."""

import pytest

from duly import telemetry
from duly.api.app import create_app
from duly.api.auth import Access
from duly.api.routes import MethodNotAllowed, RouteTable, route
from duly.errors import NotFound


async def answer(request):
    """Stand for a handler: routes are only looked up here."""


def routed(method, *paths):
    return route(method, paths, "Do something", access=Access.READ)(answer)


READ = routed("GET", "/v1/tasks/{id}", "/v1/jobs/{id}")
CHANGE = routed("PATCH", "/v1/tasks/{id}")
LOGS = routed("GET", "/v1/tasks/{id}/logs")
LIST = routed("GET", "/v1/tasks")
CANCEL = routed("POST", "/v1/tasks/cancel")
TABLE = RouteTable([READ, CHANGE, LOGS, LIST, CANCEL])


@pytest.mark.parametrize(
    ("method", "path", "found", "template", "params"),
    [
        ("GET", "/v1/tasks", LIST, "/v1/tasks", {}),
        ("GET", "/v1/tasks/", LIST, "/v1/tasks", {}),
        ("POST", "/v1/tasks/cancel", CANCEL, "/v1/tasks/cancel", {}),
        ("GET", "/v1/tasks/17", READ, "/v1/tasks/{id}", {"id": "17"}),
        ("GET", "/v1/jobs/17", READ, "/v1/jobs/{id}", {"id": "17"}),
        ("PATCH", "/v1/tasks/17/", CHANGE, "/v1/tasks/{id}", {"id": "17"}),
        ("GET", "/v1/tasks/ä b/logs", LOGS, "/v1/tasks/{id}/logs", {"id": "ä b"}),
    ],
)
def test_a_path_leads_to_its_route(method, path, found, template, params):
    assert TABLE.find(method, path) == (found, template, params)


@pytest.mark.parametrize(
    "path",
    ["", "/", "/v1", "/v2/tasks", "/v1/tasks/17/log", "/v1/tasks/17/logs/1", "/v1//17", "tasks"],
)
def test_a_path_that_no_route_has_is_not_found(path):
    with pytest.raises(NotFound, match="nothing at this path"):
        TABLE.find("GET", path)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/tasks/17", ["GET", "PATCH"]),
        ("PATCH", "/v1/jobs/17", ["GET"]),
        ("GET", "/v1/tasks/cancel", ["POST"]),
        ("OPTIONS", "/v1/tasks", ["GET"]),
        ("get", "/v1/tasks", ["GET"]),
    ],
)
def test_another_method_is_told_which_ones_there_are(method, path, allowed):
    with pytest.raises(MethodNotAllowed) as refused:
        TABLE.find(method, path)
    assert refused.value.allowed == allowed


def test_every_route_of_the_api_is_found_by_its_own_path():
    table = create_app(None).routes
    for path, declared in table:
        found = table.find(declared.operation.method, path.replace("{id}", "17"))
        assert (found.route, found.template) == (declared, path)


async def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_takes(api):
    answered = await api.call("PUT", "/v1/tasks")
    assert (answered.status_code, answered.headers["allow"]) == (405, "GET, POST")
    assert answered.json()["error"]["code"] == "method_not_allowed"


async def test_answers_are_counted_by_route_and_unknown_paths_by_one_name(api):
    before = [counted("GET", "/v1/tasks/{id}", "4xx"), counted("GET", "unknown", "4xx")]
    for path in ("/v1/tasks/1", "/v1/tasks/2", "/v1/nothing", "/v1/tasks/1/nothing"):
        assert (await api.call("GET", path)).status_code == 404
    after = [counted("GET", "/v1/tasks/{id}", "4xx"), counted("GET", "unknown", "4xx")]
    assert after == [count + 2 for count in before]


async def test_a_failure_nobody_expected_tells_nothing(api, components):
    async with components.database.connection() as conn:
        await conn.execute("alter table nodes rename to secret_nodes")
    answered = await api.call("GET", "/v1/nodes")
    assert answered.status_code == 500
    assert b"secret" not in answered.content


def counted(method, path, status):
    labels = {"method": method, "route": path, "status": status}
    return telemetry.REGISTRY.get_sample_value("duly_http_requests_total", labels) or 0
