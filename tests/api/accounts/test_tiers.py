"""Tiers over REST: built-in ones, those for everyone, a tenant's own, and their limits."""

import asyncio

import pytest

from duly.model.tenant import Scope

SMALL = {"cpu": 0.25, "memory": "128MiB"}


@pytest.fixture
async def manager(api, key_for):
    """Whoever manages a tenant with the plan `standard`."""
    key = await key_for("acme", "kim", Scope.SUBMIT, Scope.READ, Scope.MANAGE)
    async with api.components.database.connection() as conn:
        await conn.execute("update tenants set plan = 'standard' where name = 'acme'")
    return api.with_key(key)


async def put(api, name, resources, **options):
    answer = await api.call(
        "POST", "/v1/tiers", json={"name": name, "resources": resources, **options}
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


async def said(api):
    tiers = (await api.get("/v1/tiers"))["items"]
    return {one["name"]: (one["resources"]["cpu"], one["defined_by"]) for one in tiers}


async def test_three_tiers_always_exist(api, manager):
    own = {"basic": (0.5, "duly"), "regular": (1, "duly"), "premium": (2, "duly")}
    assert await said(manager) == await said(api) == own
    allowed = {one["name"]: one["allowed"] for one in (await manager.get("/v1/tiers"))["items"]}
    assert allowed == {"basic": True, "regular": True, "premium": False}


async def test_a_tenant_redefines_a_tier_for_itself_alone(api, manager):
    made = await put(manager, "basic", SMALL)
    assert (made["resources"]["cpu"], made["resources"]["memory_mb"], made["defined_by"]) == (
        0.25,
        128,
        "tenant",
    )
    assert (await manager.submit())["resources"]["cpu"] == 0.25
    assert (await api.submit())["resources"]["cpu"] == 0.5
    changed = await manager.call("PATCH", "/v1/tiers/basic", json={"resources": {"memory_mb": 64}})
    assert (changed.json()["resources"]["cpu"], changed.json()["resources"]["memory_mb"]) == (
        0.25,
        64,
    )
    assert (await manager.call("DELETE", "/v1/tiers/basic")).status_code == 204
    assert (await manager.submit())["resources"]["cpu"] == 0.5
    written = (await manager.get("/v1/audit?limit=3"))["items"]
    assert [(one["actor"], one["action"], one["target"]) for one in written] == [
        ("acme/kim", f"tier.{verb}", "basic") for verb in ("remove", "update", "create")
    ]


async def test_the_own_goes_before_everybodys_and_that_before_dulys(api, manager):
    await put(api, "basic", {**SMALL, "cpu": 0.3}, everyone=True)
    assert (await said(manager))["basic"] == (0.3, "everyone")
    changed = await manager.call("PATCH", "/v1/tiers/basic", json={"resources": {"disk": "1GiB"}})
    assert changed.json()["resources"]["cpu"] == 0.3
    await manager.call("PATCH", "/v1/tiers/basic", json={"resources": {"cpu": 0.2}})
    assert (await said(manager))["basic"] == (0.2, "tenant")
    assert (await said(api))["basic"] == (0.3, "everyone")
    await manager.call("DELETE", "/v1/tiers/basic")
    assert (await said(manager))["basic"] == (0.3, "everyone")
    assert (await api.call("DELETE", "/v1/tiers/basic?everyone=true")).status_code == 204
    assert (await said(manager))["basic"] == (0.5, "duly")


async def test_a_tenants_tier_stays_within_its_plan(api, manager):
    for name, resources, field in (
        ("mine", SMALL, "name"),
        ("premium", SMALL, "name"),
        ("basic", {**SMALL, "cpu": 51}, "resources.cpu"),
        ("basic", {**SMALL, "memory": "101GiB"}, "resources.memory"),
        ("basic", {"cpu": 1}, "resources.memory"),
        ("basic", {"memory_mb": 64}, "resources.cpu"),
        ("basic", {"cpu": -1, "memory_mb": 64}, "resources.cpu"),
    ):
        body = {"name": name, "resources": resources}
        status, error = await manager.refused("POST", "/v1/tiers", json=body)
        assert (status, error["details"]["field"]) == (422, field), body
    body = {"resources": {"cpu": 51}}
    assert (await manager.refused("PATCH", "/v1/tiers/basic", json=body))[0] == 422
    assert (await manager.refused("PATCH", "/v1/tiers/mine", json=body))[0] == 404


async def test_what_concerns_everyone_needs_an_administrator(api, manager):
    body = {"name": "basic", "resources": SMALL, "everyone": True}
    assert (await manager.refused("POST", "/v1/tiers", json=body))[0] == 403
    del body["name"]
    assert (await manager.refused("PATCH", "/v1/tiers/basic", json=body))[0] == 403
    assert (await manager.refused("DELETE", "/v1/tiers/basic?everyone=true"))[0] == 403
    assert (await said(api))["basic"] == (0.5, "duly")


async def test_whoever_only_reads_changes_no_tier(api, stranger):
    body = {"name": "mine", "resources": SMALL}
    assert (await stranger.refused("POST", "/v1/tiers", json=body))[0] == 403
    assert (await stranger.refused("PATCH", "/v1/tiers/basic", json=body))[0] == 403
    assert (await stranger.refused("DELETE", "/v1/tiers/basic"))[0] == 403


async def test_what_is_there_is_not_created_and_what_is_not_is_not_removed(api, manager):
    await put(manager, "basic", SMALL)
    body = {"name": "basic", "resources": SMALL}
    assert (await manager.refused("POST", "/v1/tiers", json=body))[0] == 409
    status, error = await manager.refused("DELETE", "/v1/tiers/regular")
    assert (status, "Duly's own" in error["message"]) == (409, True)
    assert (await manager.refused("DELETE", "/v1/tiers/nothing"))[0] == 404
    assert (await manager.refused("GET", "/v1/tiers/nothing"))[0] == 404


async def test_another_tenants_tier_is_unknown(api, manager):
    await put(api, "mine", SMALL)
    assert (await manager.refused("GET", "/v1/tiers/mine"))[0] == 404
    assert (await manager.refused("DELETE", "/v1/tiers/mine"))[0] == 404
    assert "mine" not in await said(manager)


async def test_an_administrator_acts_for_a_tenant_within_that_tenants_plan(api, manager):
    answer = await api.call(
        "POST", "/v1/tiers?tenant=acme", json={"name": "basic", "resources": SMALL}
    )
    assert answer.status_code == 201
    assert (await said(manager))["basic"] == (0.25, "tenant")
    body = {"name": "mine", "resources": SMALL}
    assert (await api.refused("POST", "/v1/tiers?tenant=acme", json=body))[0] == 422


async def test_a_tier_that_a_plan_names_is_not_taken_from_everyone(api):
    await put(api, "gpu", {**SMALL, "extra": {"gpu": 1}}, everyone=True)
    answer = await api.call("POST", "/v1/plans", json={"name": "ml", "tiers": ["gpu"]})
    assert answer.status_code == 201
    status, error = await api.refused("DELETE", "/v1/tiers/gpu?everyone=true")
    assert (status, error["details"]["plans"]) == (409, ["ml"])
    await api.call("PATCH", "/v1/plans/ml", json={"tiers": None})
    assert (await api.call("DELETE", "/v1/tiers/gpu?everyone=true")).status_code == 204


async def test_a_task_takes_the_only_tier_of_its_plan(api, manager):
    await put(api, "gpu", {**SMALL, "extra": {"gpu": 1}}, everyone=True)
    await api.call("POST", "/v1/plans", json={"name": "ml", "tiers": ["gpu"]})
    async with api.components.database.connection() as conn:
        await conn.execute("update tenants set plan = 'ml' where name = 'acme'")
    task = await manager.submit()
    assert (task["tier"], task["resources"]["extra"]) == ("gpu", {"gpu": 1})


async def test_of_two_who_create_one_tier_one_wins(api):
    body = {"name": "mine", "resources": SMALL}
    answers = await asyncio.gather(*(api.call("POST", "/v1/tiers", json=body) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]


async def test_a_tenant_has_a_hundred_tiers_at_most(api):
    async with api.components.database.connection() as conn:
        await conn.execute(
            "insert into tiers (tenant_id, name, resources)"
            " select 1, 't' || g, '{}' from generate_series(1, 100) g"
        )
    body = {"name": "more", "resources": SMALL}
    assert (await api.refused("POST", "/v1/tiers", json=body))[0] == 409
    changed = await api.call("PATCH", "/v1/tiers/t1", json={"resources": SMALL})
    assert changed.status_code == 200
    assert (await api.refused("PATCH", "/v1/tiers/basic", json={"resources": SMALL}))[0] == 409
