"""Limits of what tasks call, over REST."""

import pytest

from duly.model.tenant import Scope


@pytest.fixture
async def manager(api, key_for):
    """Whoever manages the tenant `acme`."""
    return api.with_key(await key_for("acme", "kim", Scope.SUBMIT, Scope.READ, Scope.MANAGE))


async def put(api, key="stripe", **limits):
    return await api.call("PUT", f"/v1/downstreams/{key}", json=limits)


async def listed(api):
    items = (await api.get("/v1/downstreams"))["items"]
    return [(item["key"], item["defined_by"], item["rate"], item["concurrency"]) for item in items]


async def test_limits_are_set_changed_listed_and_removed(api, manager):
    made = await put(manager, rate="100/s", concurrency=20)
    assert made.status_code == 200
    assert made.json() == {
        "key": "stripe",
        "defined_by": "tenant",
        "rate": "100/s",
        "concurrency": 20,
        "adaptive": True,
        "current_rate": "100/s",
        "current_concurrency": 20,
        "running": 0,
        "waiting": 0,
        "throttled_at": None,
        "retry_at": None,
    }
    assert (await put(manager, rate="30/m", adaptive=False)).json()["adaptive"] is False
    assert await listed(manager) == [("stripe", "tenant", "30/m", None)]
    assert await listed(api) == []
    assert (await manager.call("DELETE", "/v1/downstreams/stripe")).status_code == 204
    assert (await manager.call("DELETE", "/v1/downstreams/stripe")).status_code == 404
    written = (await manager.get("/v1/audit?limit=3"))["items"]
    assert [(entry["action"], entry["target"]) for entry in written] == [
        ("downstream.remove", "stripe"),
        ("downstream.set", "stripe"),
        ("downstream.set", "stripe"),
    ]


async def test_a_tenant_sees_its_own_limits_and_everyones_but_counts_only_its_tasks(api, manager):
    assert (await put(api, concurrency=5, everyone=True)).status_code == 200
    await put(manager, concurrency=2)
    await api.submit(uses=["stripe"])
    await manager.submit(uses=["stripe", "s3"])
    both = [("stripe", "everyone", None, 5), ("stripe", "tenant", None, 2)]
    assert await listed(manager) == both
    seen = (await manager.get("/v1/downstreams"))["items"]
    assert [item["waiting"] for item in seen] == [1, 1]
    assert [item["waiting"] for item in (await api.get("/v1/downstreams"))["items"]] == [2]


async def test_only_administrators_limit_everyone(manager):
    for refused in (
        await put(manager, concurrency=5, everyone=True),
        await manager.call("DELETE", "/v1/downstreams/stripe?everyone=true"),
    ):
        assert refused.status_code == 403


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 5, "burst": 3}, "burst"),
    ],
)
async def test_limits_that_make_no_sense_are_refused(manager, limits, field):
    refused = await put(manager, **limits)
    assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (422, field)


async def test_a_task_tells_what_it_uses_also_after_an_update_and_a_replay(api):
    task = await api.submit(uses=["stripe", "s3", "s3"])
    assert task["uses"] == ["s3", "stripe"]
    assert (await api.get(f"/v1/tasks/{task['id']}"))["uses"] == ["s3", "stripe"]
    named = await api.call("PATCH", f"/v1/tasks/{task['id']}", json={"name": "pay"})
    assert named.json()["uses"] == ["s3", "stripe"]
    changed = await api.call("PATCH", f"/v1/tasks/{task['id']}", json={"uses": ["gcs"]})
    assert changed.json()["uses"] == ["gcs"]
    await api.call("POST", f"/v1/tasks/{task['id']}/cancel")
    replay = await api.call("POST", f"/v1/tasks/{task['id']}/replay")
    assert replay.json()["uses"] == ["gcs"]
    assert (await api.submit())["uses"] == []


async def test_too_many_keys_are_refused(api):
    refused = await api.call("POST", "/v1/tasks", json={"command": ["true"], "uses": list("abcde")})
    assert refused.status_code == 422
    assert "uses: it has 5 keys; at most 4 are allowed." in refused.json()["error"]["message"]
