"""GET /v1/limits reports a tenant's limits and what is left of them."""

from datetime import timedelta

import pytest

from duly.model.tenant import Scope
from duly.store.database import now


@pytest.fixture
async def caller(api, key_for):
    """Whoever works for a tenant with the plan `free`."""
    key = await key_for("acme", "kim", Scope.SUBMIT, Scope.READ, Scope.MANAGE)
    async with api.components.database.connection() as conn:
        await conn.execute("update tenants set plan = 'free' where name = 'acme'")
    return api.with_key(key)


async def test_a_tenant_that_has_nothing_has_all_of_it_left(caller):
    limits = await caller.get("/v1/limits")
    amounts = {"memory_mb": 256, "disk_mb": 512, "iops": 0, "bandwidth_mbps": 0, "ports": 0,
               "extra": {}, "cpu": 0.5}  # fmt: skip
    none = dict.fromkeys(amounts, 0) | {"extra": {}}
    assert limits == {
        "tenant": "acme",
        "plan": "free",
        "rate": {"tasks_per_hour": 100, "burst": 50, "left": 50, "full_in": 0},
        "running": {"limit": 2, "used": 0, "left": 2},
        "resources": {
            "limit": {"cpu": 2, "memory_mb": 2048},
            "used": none,
            "left": {"cpu": 2, "memory_mb": 2048},
        },
        "waiting": {"limit": 1000, "used": 0, "left": 1000},
        "schedules": {"limit": 5, "used": 0, "left": 5},
        "tiers": {"basic": amounts},
        "queues": ["off_peak"],
        "execution_cap": {"default": 600, "longest": 3600},
        "delay_tolerance": {"default": 3600, "longest": 604800, "categories": {}},
        "retention": 7 * 86400,
        "log_bytes": 1000000,
        "result_bytes": 65536,
        "max_artifact_bytes": 100_000_000,
        "artifact_bytes": {"limit": 10**9, "used": 0, "left": 10**9},
        "cpu_quota": False,
    }


async def test_what_runs_is_reserved_and_waits_is_counted_for_its_tenant_alone(
    api, caller, agent, stranger
):
    await caller.submit()
    held = await agent.start()
    await caller.submit(resources={"extra": {"gpu": 1}})
    await caller.submit(run_at="2199-01-01T00:00:00Z")
    body = {"resources": {"cpu": 0.5, "memory": "100MiB"}}
    assert (await caller.call("POST", "/v1/resources", json=body)).status_code == 201
    nightly = {"task": {"command": ["true"]}, "daily": "06:30"}
    assert (await caller.call("POST", "/v1/schedules", json=nightly)).status_code == 201
    limits = await caller.get("/v1/limits")
    assert limits["running"] == {"limit": 2, "used": 1, "left": 1}
    assert limits["waiting"] == {"limit": 1000, "used": 2, "left": 998}
    assert limits["schedules"] == {"limit": 5, "used": 1, "left": 4}
    assert (limits["resources"]["used"]["cpu"], limits["resources"]["left"]) == (
        1.0,
        {"cpu": 1, "memory_mb": 2048 - 356},
    )
    other = await api.get("/v1/limits")
    assert (other["running"]["used"], other["waiting"]["used"]) == (0, 0)
    assert (await api.get("/v1/limits?tenant=acme"))["running"] == limits["running"]
    await agent.finish(held)
    assert (await caller.get("/v1/limits"))["running"]["used"] == 0


async def test_a_reservation_waits_for_what_is_in_use_but_not_for_what_the_plan_never_grants(
    caller, agent
):
    too_much = {"resources": {"cpu": 2.5}}
    status, error = await caller.refused("POST", "/v1/resources", json=too_much)
    assert (status, error["details"]["field"]) == (422, "resources.cpu")
    assert "the reservation asks for 2.5 CPUs; the plan 'free' grants at most 2" in error["message"]
    made = await caller.call("POST", "/v1/resources", json={"resources": {"cpu": 1.5}})
    assert made.status_code == 201
    path = f"/v1/resources/{made.json()['id']}"
    assert (await caller.refused("PUT", path, json=too_much))[0] == 422
    status, error = await caller.refused("POST", "/v1/resources", json={"resources": {"cpu": 1}})
    assert (status, error["details"]["limit"]) == (429, "max_resources")


async def test_a_plan_without_limits_says_so(api):
    limits = await api.get("/v1/limits")
    assert limits["rate"] is None
    assert limits["running"] == {"limit": None, "used": 0, "left": None}
    assert (limits["resources"]["limit"], limits["resources"]["left"]) == (None, None)
    assert limits["execution_cap"] == {"default": 86400, "longest": None}


async def test_of_sizes_the_smaller_counts_of_the_plan_and_the_settings(api):
    execution = api.components.settings.execution
    for granted, told in ((None, execution.result_limit), (10**9, execution.result_limit), (7, 7)):
        changes = {"max_result_bytes": granted}
        await api.call("PATCH", "/v1/plans/unlimited", json=changes)
        assert (await api.get("/v1/limits"))["result_bytes"] == told
    await api.call("PATCH", "/v1/plans/unlimited", json={"max_result_bytes": None})
    assert (await api.get("/v1/limits"))["log_bytes"] == execution.log_limit
    history = api.components.settings.retention.history.total_seconds()
    assert (await api.get("/v1/limits"))["retention"] == history
    await api.call("PATCH", "/v1/plans/unlimited", json={"retention": "3d"})
    assert (await api.get("/v1/limits"))["retention"] == 3 * 86400
    await api.call("PATCH", "/v1/plans/unlimited", json={"retention": None})


async def test_what_is_left_of_the_rate_is_refilled_as_time_passes(api, caller):
    async with api.components.database.connection() as conn:
        ago = await now(conn) - timedelta(minutes=6)
        await conn.execute(
            "insert into buckets (tenant_id, tokens, filled_at)"
            " select id, 3.5, $1 from tenants where name = 'acme'"
            " on conflict (tenant_id) do update set tokens = 3.5, filled_at = $1",
            ago,
        )
    rate = (await caller.get("/v1/limits"))["rate"]
    # 100 in an hour are 10 in six minutes.
    assert rate["left"] == 13
    assert rate["full_in"] == pytest.approx((50 - 13.5) * 36, abs=30)


async def test_more_in_use_than_granted_leaves_nothing_and_not_less(api, caller, agent):
    await caller.submit()
    await agent.start()
    changes = {"max_running": 1, "max_resources": {"cpu": 0.001}}
    assert (await api.call("PATCH", "/v1/plans/free", json=changes)).status_code == 200
    limits = await caller.get("/v1/limits")
    assert limits["running"] == {"limit": 1, "used": 1, "left": 0}
    assert limits["resources"]["left"] == {"cpu": 0}
