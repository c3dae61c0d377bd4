import asyncio

import pytest

from tests.api.people import audited_actions, create, remove, update, with_new_key


@pytest.fixture
async def acme(api):
    return await create(api, "/v1/tenants", name="acme", plan="standard")


async def test_a_tenant_is_created_listed_shown_changed_and_removed(api):
    acme = await create(api, "/v1/tenants", name="acme", plan="standard")
    assert (acme["name"], acme["plan"], acme["status"]) == ("acme", "standard", "active")
    assert await api.get("/v1/tenants/acme") == await api.get(f"/v1/tenants/{acme['id']}") == acme
    assert [one["name"] for one in (await api.get("/v1/tenants"))["items"]] == ["acme", "default"]
    assert (await update(api, "/v1/tenants/acme", plan="business"))["plan"] == "business"
    assert (await update(api, "/v1/tenants/acme", name="Acme-2"))["id"] == acme["id"]
    await remove(api, "/v1/tenants/Acme-2")
    assert (await api.refused("GET", "/v1/tenants/Acme-2"))[0] == 404
    assert await audited_actions(api) == [
        "tenant.create acme",
        "tenant.update acme",
        "tenant.update acme",
        "tenant.remove Acme-2",
    ]


async def test_a_tenant_has_the_smallest_plan_unless_told(api):
    assert (await create(api, "/v1/tenants", name="acme"))["plan"] == "free"


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "a:b", "-a", "1234", "x" * 64, "caf\xe9", "a\0b", "../x"]
)
async def test_a_name_that_cannot_be_in_a_path_or_a_log_is_refused(api, name):
    status, error = await api.refused("POST", "/v1/tenants", json={"name": name})
    assert (status, error["details"]["field"]) == (422, "name")


async def test_a_plan_that_does_not_exist_is_refused_with_those_that_do(api, acme):
    for method, path in (("POST", "/v1/tenants"), ("PATCH", "/v1/tenants/acme")):
        body = {"plan": "gold"} | ({"name": "other"} if method == "POST" else {})
        status, error = await api.refused(method, path, json=body)
        assert (status, error["details"]["field"]) == (422, "plan")
        assert "Use business, free, standard or unlimited." in error["message"]


async def test_two_tenants_never_have_the_same_name(api, acme):
    assert (await api.refused("POST", "/v1/tenants", json={"name": "acme"}))[0] == 409
    assert (await api.refused("PATCH", "/v1/tenants/acme", json={"name": "default"}))[0] == 409


async def test_of_many_who_create_the_same_tenant_one_does(api):
    sent = [api.call("POST", "/v1/tenants", json={"name": "acme"}) for _ in range(8)]
    statuses = [answer.status_code for answer in await asyncio.gather(*sent)]
    assert sorted(statuses) == [201, *[409] * 7]
    assert await audited_actions(api) == ["tenant.create acme"]


async def test_the_installations_own_tenant_stays(api):
    for method, path, body in (
        ("DELETE", "/v1/tenants/default", None),
        ("POST", "/v1/tenants/default/suspend", None),
        ("PATCH", "/v1/tenants/default", {"name": "other"}),
    ):
        assert (await api.refused(method, path, json=body))[0] == 409
    assert (await update(api, "/v1/tenants/default", plan="business"))["plan"] == "business"


async def test_whoever_is_no_administrator_sees_its_own_tenant_alone(api, acme):
    kim = await with_new_key(api, "submit", "read", "manage", user="kim")
    assert [one["name"] for one in (await kim.get("/v1/tenants"))["items"]] == ["acme"]
    assert (await kim.get("/v1/tenants/acme"))["plan"] == "standard"
    other = await create(api, "/v1/tenants", name="other")
    told = [
        (await kim.refused("GET", f"/v1/tenants/{name}"))
        for name in ("default", other["id"], "nobody")
    ]
    assert [status for status, _ in told] == [404] * 3
    assert told[0][1]["message"].replace("default", "nobody") == told[2][1]["message"]


async def test_nobody_changes_its_own_plan(api, acme):
    kim = await with_new_key(api, "submit", "read", "manage", user="kim")
    for method, path, body in (
        ("PATCH", "/v1/tenants/acme", {"plan": "unlimited"}),
        ("POST", "/v1/tenants", {"name": "mine", "plan": "unlimited"}),
        ("POST", "/v1/tenants/acme/resume", None),
        ("POST", "/v1/tenants/acme/suspend", None),
        ("DELETE", "/v1/tenants/acme", None),
        ("PATCH", "/v1/tenants/default", {"plan": "free"}),
    ):
        assert (await kim.refused(method, path, json=body))[0] == 403
    assert (await api.get("/v1/tenants/acme"))["plan"] == "standard"


async def test_a_suspended_tenant_looks_and_does_nothing_else(api, acme):
    kim = await with_new_key(api, "submit", "read", "manage", user="kim")
    task = await kim.submit()
    answer = await api.call("POST", "/v1/tenants/acme/suspend")
    assert (answer.status_code, answer.json()["status"]) == (200, "suspended")
    for method, path, body in (
        ("POST", "/v1/tasks", {"command": ["true"]}),
        ("POST", "/v1/tasks/batch", {"tasks": [{"command": ["true"]}]}),
        ("POST", f"/v1/tasks/{task['id']}/cancel", None),
        ("DELETE", f"/v1/tasks/{task['id']}", None),
        ("PATCH", f"/v1/tasks/{task['id']}", {"priority": 1}),
        ("POST", "/v1/keys", {"scopes": ["read"]}),
        ("DELETE", "/v1/keys/1", None),
        ("POST", "/v1/users", {"name": "sam"}),
        ("POST", "/v1/resources", {"resources": {"cpu": 1}}),
    ):
        status, error = await kim.refused(method, path, json=body)
        assert (status, error["code"]) == (403, "tenant_suspended"), path
    for path in (f"/v1/tasks/{task['id']}", "/v1/tasks", "/v1/users", "/v1/keys", "/v1/tenants"):
        await kim.get(path)
    answer = await api.call("POST", "/v1/tenants/acme/resume")
    assert (answer.status_code, answer.json()["suspended_at"]) == (200, None)
    await kim.submit()
    assert await audited_actions(api, "?action=tenant.suspend&tenant=acme") == [
        "tenant.suspend acme"
    ]


async def test_an_administrator_still_administers_a_suspended_tenant(api, acme):
    await api.call("POST", "/v1/tenants/acme/suspend")
    await create(api, "/v1/users?tenant=acme", name="kim")
    key = await create(api, "/v1/keys", tenant="acme", user="kim", scopes=["read"])
    await remove(api, f"/v1/keys/{key['id']}?tenant=acme")


async def test_what_an_administrator_submits_for_a_tenant_is_none_of_its_users(
    api, acme, components
):
    answer = await api.call("POST", "/v1/tasks?tenant=acme", json={"command": ["true"]})
    assert (answer.status_code, answer.json()["user"]) == (201, None)
    async with components.database.connection() as conn:
        owner = "select t.name, tasks.user_id from tasks join tenants t on t.id = tenant_id"
        assert tuple(await conn.fetchrow(owner)) == ("acme", None)


async def test_what_is_no_name_of_one_tenant_is_refused(api, acme):
    for query in ("tenant=%00", "tenant=acme%00", "tenant=acme&tenant=acme"):
        status, error = await api.refused("GET", f"/v1/tasks?{query}")
        assert (status, error["details"]["field"]) == (422, "tenant"), query


async def test_suspending_and_resuming_twice_is_doing_it_once(api, acme):
    first = (await api.call("POST", "/v1/tenants/acme/suspend")).json()
    assert (await api.call("POST", "/v1/tenants/acme/suspend")).json() == first
    for _ in range(2):
        assert (await api.call("POST", "/v1/tenants/acme/resume")).json()["status"] == "active"
    assert await audited_actions(api) == [
        "tenant.create acme",
        "tenant.suspend acme",
        "tenant.resume acme",
    ]


async def test_a_tenant_with_live_tasks_is_not_removed_and_the_answer_says_what_to_do(api, acme):
    kim = await with_new_key(api, "submit", "read", user="kim")
    task = await kim.submit()
    status, error = await api.refused("DELETE", "/v1/tenants/acme")
    assert (status, error["details"]) == (409, {"live": 1})
    assert "1 task that" in error["message"]
    assert "tenant suspend acme" in error["message"]
    assert "--status scheduled,blocked,waiting,running,paused'" in error["message"]
    assert (await kim.get("/v1/tasks"))["items"][0]["id"] == task["id"]
    answer = await api.call("POST", "/v1/tasks/cancel?tenant=acme", json={"status": ["waiting"]})
    assert answer.json()["cancelled"] == 1
    await remove(api, "/v1/tenants/acme")


async def test_a_tenant_that_is_removed_takes_its_keys_and_users_along(api, acme, components):
    kim = await with_new_key(api, "submit", "read", user="kim")
    await kim.get("/v1/tasks")
    await remove(api, "/v1/tenants/acme")
    assert (await kim.refused("GET", "/v1/tasks"))[0] == 401
    for path in ("/v1/users?tenant=acme", "/v1/keys?tenant=acme"):
        assert (await api.refused("GET", path))[0] == 404
    async with components.database.connection() as conn:
        left = await conn.fetchval(
            "select count(*) from keys k join tenants t on t.id = k.tenant_id"
            " where t.name = 'acme' and k.revoked_at is null"
        )
    assert left == 0


@pytest.mark.parametrize(
    "path", ["/v1/tenants/nobody", "/v1/tenants/999", "/v1/tenants/9999999999999999999"]
)
async def test_a_tenant_that_does_not_exist_is_not_found(api, path):
    for method, sub, body in (
        ("GET", "", None),
        ("PATCH", "", {"plan": "free"}),
        ("DELETE", "", None),
        ("POST", "/suspend", None),
        ("POST", "/resume", None),
    ):
        assert (await api.refused(method, f"{path}{sub}", json=body))[0] == 404


async def test_lists_are_paged(api):
    for name in ("a", "b", "c"):
        await create(api, "/v1/tenants", name=name)
    first = await api.get("/v1/tenants?limit=3")
    assert [one["name"] for one in first["items"]] == ["c", "b", "a"]
    rest = await api.get(f"/v1/tenants?limit=3&cursor={first['next_cursor']}")
    assert ([one["name"] for one in rest["items"]], rest["next_cursor"]) == (["default"], None)
