"""A tenant's weight is set, reset and audited; shares are told of the nodes that take work."""

import pytest

from tests.api.people import create, update, with_new_key


@pytest.fixture
async def acme(api):
    return await create(api, "/v1/tenants", name="acme", plan="standard")


@pytest.fixture
async def kim(api, acme):
    """Who submits tasks of acme."""
    return await with_new_key(api, "submit", "read", user="kim")


@pytest.fixture
async def other(api):
    """Who submits tasks of another tenant."""
    await create(api, "/v1/tenants", name="other", plan="unlimited")
    return await with_new_key(api, "submit", "read", tenant="other", user="sam")


async def shares_of(api, name="acme"):
    shown = await api.get(f"/v1/tenants/{name}")
    return shown["share"], shown["fair_share"]


def cores(number):
    return {"resources": {"cpu": number, "memory_mb": 1, "disk_mb": 1}}


async def test_a_tenant_has_the_weight_of_its_plan_until_it_gets_its_own(api, acme):
    assert (acme["weight"], acme["weight_override"]) == (2, None)
    changed = await update(api, "/v1/tenants/acme", weight=7)
    assert (changed["weight"], changed["weight_override"]) == (7, 7)
    assert (await update(api, "/v1/tenants/acme", plan="business"))["weight"] == 7
    assert await api.get("/v1/tenants/acme") == (await api.get("/v1/tenants"))["items"][0]
    reset = await update(api, "/v1/tenants/acme", weight=None)
    assert (reset["weight"], reset["weight_override"]) == (4, None)


async def test_a_tenant_is_created_with_a_weight_of_its_own(api):
    made = await create(api, "/v1/tenants", name="acme", weight=1000)
    assert (made["weight"], made["weight_override"], made["plan"]) == (1000, 1000, "free")
    (entry,) = (await api.get("/v1/audit?action=tenant.create"))["items"]
    assert entry["details"] == {"plan": "free", "weight": 1000}


async def test_a_plan_that_changes_its_weight_moves_the_tenants_without_their_own(api, acme):
    await create(api, "/v1/tenants", name="other", plan="standard", weight=3)
    await update(api, "/v1/plans/standard", weight=9)
    found = {one["name"]: one["weight"] for one in (await api.get("/v1/tenants"))["items"]}
    assert (found["acme"], found["other"]) == (9, 3)


async def test_an_entry_says_which_weight_was_before_and_after(api, acme):
    await update(api, "/v1/tenants/acme", weight=7, plan="business")
    await update(api, "/v1/tenants/acme", weight=7)
    await update(api, "/v1/tenants/acme", name="Acme-2")
    await update(api, "/v1/tenants/Acme-2", weight=None)
    found = (await api.get("/v1/audit?action=tenant.update"))["items"]
    assert [one["details"] for one in reversed(found)] == [
        {"plan": ["standard", "business"], "weight": [None, 7]},
        {"name": ["acme", "Acme-2"]},
        {"weight": [7, None]},
    ]


@pytest.mark.parametrize("weight", [0, -1, 1001, 2**40, 1.5, "4", True])
async def test_a_weight_that_cannot_be_is_refused_and_changes_nothing(api, acme, weight):
    for method, path, body in (
        ("PATCH", "/v1/tenants/acme", {"name": "Acme-2"}),
        ("POST", "/v1/tenants", {"name": "other"}),
    ):
        status, error = await api.refused(method, path, json={**body, "weight": weight})
        assert (status, error["details"]["field"]) == (422, "weight")
    assert await api.get("/v1/tenants/acme") == acme
    assert (await api.refused("GET", "/v1/tenants/other"))[0] == 404


async def test_a_change_of_nothing_is_refused(api, acme):
    for body in ({}, {"name": None, "plan": None}):
        status, error = await api.refused("PATCH", "/v1/tenants/acme", json=body)
        assert (status, "weight" in error["message"]) == (422, True)


async def test_the_weight_of_the_installations_own_tenant_can_be_changed(api):
    assert (await update(api, "/v1/tenants/default", weight=5))["weight"] == 5


async def test_nobody_changes_its_own_weight(api, kim):
    body = {"weight": 1000}
    assert (await kim.refused("PATCH", "/v1/tenants/acme", json=body))[0] == 403


async def test_without_a_ready_node_no_share_can_be_told(api, kim, join):
    await kim.submit(**cores(5))
    assert await shares_of(api) == await shares_of(kim) == (None, None)
    await join()
    assert await shares_of(api) == await shares_of(kim) == (0.0, None)
    answer = await api.call("PUT", "/v1/nodes/node-a", json={"drain": True})
    assert answer.status_code == 200
    assert await shares_of(api) == (None, None)


async def test_a_share_is_the_largest_fraction_over_the_kinds_of_resources(api, kim, agent):
    await kim.submit(resources={"cpu": 1, "memory_mb": 4096, "disk_mb": 1})
    started = await agent.start()
    assert await shares_of(api) == await shares_of(kim) == (0.5, None)
    await agent.finish(started)
    assert await shares_of(api) == (0.0, None)


async def test_a_reservation_counts_in_the_share(api, agent):
    await create(api, "/v1/resources", resources={"cpu": 1})
    assert await shares_of(api, "default") == (0.25, None)


@pytest.fixture
async def busy(api, agent):
    """Let the default tenant hold half of the node; tasks with three cores wait."""
    await api.submit(**cores(2))
    await agent.start()


async def test_tenants_with_waiting_tasks_divide_what_others_leave_by_weight(api, kim, other, busy):
    await update(api, "/v1/tenants/acme", weight=3)
    for caller in (kim, other):
        await caller.submit(**cores(3))
    assert await shares_of(api, "default") == (0.5, None)
    assert await shares_of(kim) == (0.0, 0.375)
    assert await shares_of(api, "other") == await shares_of(other, "other") == (0.0, 0.125)
    assert (await update(api, "/v1/tenants/acme", weight=1))["fair_share"] == 0.25
    listed = {one["name"]: one for one in (await api.get("/v1/tenants"))["items"]}
    assert (listed["other"]["fair_share"], listed["default"]["fair_share"]) == (0.25, None)


async def test_tasks_that_may_not_start_take_no_part_in_the_division(api, kim, other, busy):
    await kim.submit(**cores(3))
    await other.submit(**cores(5))
    assert await shares_of(other, "other") == (0.0, None)
    assert await shares_of(api) == (0.0, 0.5)
    await other.submit(**cores(3))
    assert await shares_of(api) == (0.0, 0.333333)
    assert await shares_of(other, "other") == (0.0, 0.166667)
    await api.call("POST", "/v1/tenants/other/suspend")
    assert await shares_of(api, "other") == (0.0, None)
    assert await shares_of(api) == (0.0, 0.5)


async def test_a_tenant_at_its_limits_takes_no_part_in_the_division(api, kim, other, busy):
    await kim.submit(**cores(3))
    await other.submit(**cores(3))
    await create(api, "/v1/plans", name="small", max_resources={"cpu": 2})
    await update(api, "/v1/tenants/other", plan="small")
    assert await shares_of(api, "other") == (0.0, None)
    assert await shares_of(api) == (0.0, 0.5)


async def test_the_status_tells_the_share_of_each_tenant_to_administrators(api, kim, busy):
    (shown,) = (await api.get("/v1/status"))["tenants"]
    assert (shown["tenant"], shown["share"]) == ("default", 0.5)
    assert (await kim.get("/v1/status"))["tenants"] is None
