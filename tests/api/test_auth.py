import pytest

from duly.api.auth import REQUIRED_SCOPES, Access
from duly.model.tenant import Scope

PUBLIC = {"/healthz", "/readyz", "/docs", "/v1/openapi.json"}


@pytest.fixture
def routes(api):
    """Every (method, path, access) that the application answers."""
    app = api.client._transport.app
    return [(route.operation.method, path, route.operation.access) for path, route in app.routes]


async def test_every_route_declares_who_may_call_it(routes):
    assert len(routes) > 40
    assert all(access in Access for _, _, access in routes)


async def test_only_the_public_routes_answer_without_a_key(api, routes):
    nobody = api.with_key(None)
    for method, path, _ in routes:
        filled = path.replace("{id}", "1")
        if method == "HEAD":  # which has no body to tell more
            assert (await nobody.call(method, filled)).status_code == 401, path
        elif path not in PUBLIC | {"/v1/login"}:
            status, error = await nobody.refused(method, filled)
            assert (status, error["code"]) == (401, "unauthenticated"), path
    for path in PUBLIC:
        assert (await nobody.call("GET", path)).status_code == 200


async def test_a_wrong_key_opens_nothing(api):
    for key in ("", "wrong", "Bearer", "duly_" + "x" * 43, "caf\xe9", "x" * 10_000):
        for path in ("/v1/tasks", "/metrics", "/v1/nodes"):
            answer = await api.call(
                "GET", path, headers={"authorization": f"Bearer {key}".encode("latin-1")}
            )
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_only_a_bearer_is_understood(api):
    for value in ("Basic YTpi", "duly_x", "Bearer", ""):
        assert (await api.refused("GET", "/v1/tasks", headers={"authorization": value}))[0] == 401


async def test_a_key_does_what_its_scopes_say_and_no_more(api, key_for, routes):
    for scope in (Scope.SUBMIT, Scope.READ, Scope.MANAGE, Scope.NODE):
        limited = api.with_key(await key_for("acme", "kim", scope))
        for method, path, access in routes:
            if access not in REQUIRED_SCOPES:
                continue
            answer = await limited.call(method, path.replace("{id}", "1"))
            assert (answer.status_code == 403) == (access != scope), (scope, method, path)


async def test_an_api_key_is_no_nodes_key_and_the_other_way_round(api, agent):
    status, _ = await api.refused("POST", "/v1/gateway/heartbeat", content=b"")
    assert status == 401
    for path in ("/v1/tasks", "/v1/nodes", "/metrics"):
        assert (await agent.api.refused("GET", path))[0] == 401


async def test_an_api_key_is_no_join_token(api):
    body = {"name": "intruder", "capacity": {"cpu": 1}}
    status, error = await api.refused("POST", "/v1/nodes", json=body)
    assert (status, error["details"]["field"]) == (422, "functions")
    assert (await api.get("/v1/nodes"))["items"] == []


async def test_a_revoked_key_stops_working(api, key_for, components):
    key = await key_for("acme", "kim", Scope.READ)
    async with components.database.connection() as conn:
        await conn.execute("update keys set revoked_at = duly.now() where prefix = $1", key[:12])
    assert (await api.with_key(key).refused("GET", "/v1/tasks"))[0] == 401


async def test_no_other_spelling_of_a_path_goes_around_the_key(api):
    nobody = api.with_key(None)
    for path in (
        "/healthz/",
        "//healthz",
        "/%68ealthz",
        "/v1//openapi.json",
        "/docs/",
        "/v1//tasks",
        "/v1/tasks/",
        "//v1/tasks",
        "/v1/./tasks",
        "/v1/x/../tasks",
        "/healthz/../v1/tasks",
        "/healthz%2f..%2fv1/tasks",
    ):
        assert (await nobody.call("GET", path)).status_code in (401, 404), path
