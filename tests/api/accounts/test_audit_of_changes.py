import pytest

from tests.api.people import audited_actions, create, remove, update, with_new_key


@pytest.fixture
async def manager(api):
    """Whoever manages the tenant acme."""
    await create(api, "/v1/tenants", name="acme", plan="standard")
    return await with_new_key(api, "submit", "read", "manage", user="kim")


async def test_a_tenant_reads_what_concerns_it_and_nothing_else(api, manager):
    await create(api, "/v1/tenants", name="other")
    await create(manager, "/v1/users", name="sam")
    found = (await manager.get("/v1/audit"))["items"]
    assert {one["tenant"] for one in found} == {"acme"}
    assert (found[0]["actor"], found[0]["action"]) == ("acme/kim", "user.create")
    assert "tenant.create other" in await audited_actions(api)
    assert "tenant.create other" not in await audited_actions(api, "?tenant=acme")
    assert (await manager.refused("GET", "/v1/audit?tenant=other"))[0] == 403


async def test_entries_are_found_by_actor_action_and_time_page_by_page(api, manager):
    for name in ("a", "b", "c"):
        await create(manager, "/v1/users", name=name)
    await remove(manager, "/v1/users/a")
    assert await audited_actions(api, "?actor=acme/kim&action=user.remove") == ["user.remove a"]
    assert await audited_actions(api, "?actor=nobody") == []
    assert await audited_actions(api, "?since=1h&action=user.create&actor=acme/kim") == [
        "user.create a",
        "user.create b",
        "user.create c",
    ]
    assert await audited_actions(api, "?since=2099-01-01T00:00:00Z") == []
    first = await api.get("/v1/audit?actor=acme/kim&limit=3")
    rest = await api.get(f"/v1/audit?actor=acme/kim&limit=3&cursor={first['next_cursor']}")
    assert [one["target"] for one in first["items"]] == ["a", "c", "b"]
    assert ([one["target"] for one in rest["items"]], rest["next_cursor"]) == (["a"], None)


async def test_what_was_refused_leaves_no_entry(api, manager):
    before = await audited_actions(api)
    await manager.refused("POST", "/v1/keys", json={"scopes": ["admin"]})
    await manager.refused("POST", "/v1/users", json={"name": "kim"})
    await api.refused("DELETE", "/v1/users/admin")
    await api.refused("PATCH", "/v1/tenants/acme", json={"plan": "gold"})
    assert await audited_actions(api) == before


async def test_an_entry_says_what_was_before_and_after(api, manager):
    await update(api, "/v1/tenants/acme", plan="business")
    (entry,) = (await api.get("/v1/audit?action=tenant.update"))["items"]
    assert entry["details"] == {"plan": ["standard", "business"]}
    assert (entry["actor"], entry["tenant"]) == ("default/admin", "acme")


async def test_a_service_acts_under_its_name(api, manager):
    robot = await with_new_key(manager, "read", "manage", service="robot", tenant=None)
    await create(robot, "/v1/users", name="sam")
    assert (await api.get("/v1/audit?limit=1"))["items"][0]["actor"] == "acme/service:robot"


async def test_a_plan_is_told_as_it_was_and_as_it_is(api):
    asked = {"max_running": 3, "tolerances": {"mail": 30}, "delay_tolerance": "1m"}
    await create(api, "/v1/plans", name="team", **asked)
    await update(api, "/v1/plans/team", max_running=None, max_waiting=7, weight=1)
    await remove(api, "/v1/plans/team")
    found = (await api.get("/v1/audit"))["items"]
    told = {one["action"]: one["details"] for one in found if one["target"] == "team"}
    assert told["plan.create"]["grants"]["max_running"] == 3
    assert told["plan.create"]["grants"]["tolerances"] == {"mail": 30.0}
    assert told["plan.create"]["grants"]["delay_tolerance"] == 60.0
    assert told["plan.update"] == {"max_running": [3, None], "max_waiting": [None, 7]}
    assert told["plan.remove"]["grants"]["max_waiting"] == 7


async def test_amounts_are_told_as_people_write_them(api, join):
    await join("node-a")
    amounts = {"cpu": 1.5, "memory_mb": 512, "extra": {"gpu": 1}}
    await create(api, "/v1/plans", name="team", max_resources=amounts, price_per_task=1e-7)
    await create(api, "/v1/tiers", name="small", everyone=True, resources=amounts)
    reserved = {"cpu": 1.5, "memory_mb": 512}
    await create(api, "/v1/resources", node="node-a", resources=reserved)
    found = {one["action"]: one["details"] for one in (await api.get("/v1/audit"))["items"]}
    assert found["plan.create"]["grants"]["max_resources"] == amounts
    assert found["plan.create"]["grants"]["price_per_task"] == "0.0000001"
    assert found["tier.create"]["resources"] == amounts
    assert found["reservation.create"]["resources"] == reserved


async def test_what_is_done_to_nodes_is_noted_and_no_secret_is(api, join):
    token = (await create(api, "/v1/node-tokens", expires_in="2h"))["token"]
    agent = await join("node-a")
    capacity = {"capacity": {"cpu": 1}}
    for change in ({"drain": True}, {"drain": False}, capacity):
        assert (await api.call("PUT", "/v1/nodes/node-a", json=change)).status_code == 200
    await remove(api, "/v1/nodes/node-a")
    found = (await api.get("/v1/audit"))["items"]
    of_node = [(one["actor"], one["action"]) for one in found if one["target"] == "node-a"]
    verbs = ("remove", "capacity", "undrain", "drain")
    assert of_node == [
        *(("default/admin", f"node.{verb}") for verb in verbs),
        ("node:node-a", "node.join"),
    ]
    assert all(one["details"]["id"] == str(agent.joined.node) for one in found[:5])
    assert found[1]["details"]["capacity"] == {"cpu": 1.0}
    (first, *_) = [one for one in reversed(found) if one["action"] == "node.token"]
    assert (first["actor"], first["target"]) == ("default/admin", "")
    assert first["details"] == {"expires_in": 7200.0, "uses": 1}
    assert token not in str(found)
    assert agent.api.client.headers["authorization"].split()[1] not in str(found)


async def test_what_is_reserved_is_noted_with_what_and_where_and_what_is_refused_is_not(
    api, manager, join
):
    await create(api, "/v1/plans", name="team", max_resources={"cpu": 2})
    await update(api, "/v1/tenants/acme", plan="team")
    node = str((await join("node-a")).joined.node)
    one = (await create(manager, "/v1/resources", resources={"cpu": 1}))["id"]
    path = f"/v1/resources/{one}"
    for method, where, cpu, told in (
        ("POST", "/v1/resources", 1.5, (429, "Limit exceeded: it needs 1.5 CPU")),
        ("PUT", path, 2.5, (422, "resources.cpu: the reservation asks for 2.5 CPUs")),
    ):
        status, error = await manager.refused(method, where, json={"resources": {"cpu": cpu}})
        assert (status, error["message"][: len(told[1])]) == told
    answer = await manager.call("PUT", path, json={"resources": {"cpu": 2}})
    assert answer.status_code == 200, answer.text
    await remove(manager, path)
    noted = (await api.get("/v1/audit?tenant=acme&actor=acme/kim"))["items"]
    assert [(one["action"], one["target"]) for one in reversed(noted)] == [
        (f"reservation.{verb}", one) for verb in ("create", "update", "release")
    ]
    told = [(one["details"]["node"], one["details"]["resources"]) for one in noted[1:]]
    assert told == [(node, {"cpu": cpu}) for cpu in (2, 1)]
