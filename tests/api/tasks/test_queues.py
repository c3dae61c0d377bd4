"""Queues over REST: requesting one, reading it back, and the plan's permission."""

import pytest


@pytest.fixture
async def free(api, stranger):
    """Whoever works for a tenant with the plan `free`."""
    async with api.components.database.connection() as conn:
        await conn.execute("update tenants set plan = 'free' where name = 'acme'")
    return stranger


@pytest.mark.parametrize(
    ("fields", "queue"),
    [
        ({}, "delayable"),
        ({"queue": None}, "delayable"),
        ({"queue": "urgent", "delay_tolerance": "1h"}, "urgent"),
        ({"queue": "off_peak"}, "off_peak"),
        ({"queue": "off_peak", "delay_tolerance": 30}, "urgent"),
        ({"delay_tolerance": 30}, "urgent"),
        ({"delay_tolerance": 30, "run_at": "2199-01-01T00:00:00Z"}, "delayable"),
    ],
)
async def test_a_task_is_told_the_queue_that_it_is_in(api, fields, queue):
    task = await api.submit(**fields)
    assert task["queue"] == queue
    assert (await api.get(f"/v1/tasks/{task['id']}"))["queue"] == queue
    (listed,) = (await api.get("/v1/tasks?limit=1"))["items"]
    assert (listed["id"], listed["queue"]) == (task["id"], queue)


async def test_a_queue_beyond_the_plan_is_refused_like_a_tier(api, free):
    assert (await free.submit(queue="off_peak"))["delay_tolerance"] == 12 * 3600
    task = (await free.submit())["id"]
    body = {"command": ["true"], "queue": "urgent"}
    several = {"tasks": [{"command": ["true"]}, body]}
    graph = {"defaults": {"queue": "urgent"}, "tasks": {"a": {"command": ["true"]}}}
    schedule = {"daily": "06:30", "task": body}
    for method, path, said, field in (
        ("POST", "/v1/tasks", body, "queue"),
        ("PATCH", f"/v1/tasks/{task}", {"queue": "urgent"}, "queue"),
        ("POST", "/v1/tasks/batch", several, "tasks[1].queue"),
        ("POST", "/v1/graphs", graph, "tasks[0].queue"),
        ("POST", "/v1/schedules", schedule, "task.queue"),
    ):
        status, error = await free.refused(method, path, json=said)
        assert (status, error["details"]["field"]) == (422, field)
        assert (
            "the plan 'free' does not include the queue 'urgent'. Use off_peak" in error["message"]
        )
    status, error = await api.refused("POST", "/v1/tasks", json={**body, "queue": "periodic"})
    assert (status, error["details"]["field"]) == (422, "queue")


async def test_a_plan_says_which_queues_may_be_asked_for(api):
    plan = {"name": "slow", "queues": ["off_peak"]}
    made = (await api.call("POST", "/v1/plans", json=plan)).json()
    assert made["queues"] == ["off_peak"]
    for queues in ([], ["urgent", "off_peak"], None):
        changed = await api.call("PATCH", "/v1/plans/slow", json={"queues": queues})
        assert changed.json()["queues"] == queues
        assert (await api.get("/v1/plans/slow"))["queues"] == queues
    assert (await api.get("/v1/limits"))["queues"] == ["urgent", "off_peak"]


async def test_off_peak_work_that_waits_says_how_much_is_in_use(api, agent):
    await api.submit(resources={"cpu": 4})
    ref = await agent.start()
    quiet = (await api.submit(queue="off_peak"))["id"]
    reason = await api.get(f"/v1/tasks/{quiet}/why")
    assert (reason["code"], reason["details"]["kind"]) == ("off_peak", "cpu")
    assert (reason["details"]["used_percent"], reason["details"]["peak_percent"]) == (100, 80)
    assert (await api.get(f"/v1/tasks/{quiet}"))["reason"] == reason
    assert await agent.finish(ref)
    assert str((await agent.start()).task) == quiet


async def test_at_peak_the_status_tells_since_when_and_what_waits_for_its_end(api, agent, stranger):
    assert (await api.get("/v1/status"))["peak"] is None
    await api.submit(resources={"cpu": 3.5})
    ref = await agent.start()
    await api.submit(queue="off_peak")
    patient = (await api.submit(delay_tolerance="12h"))["id"]
    await stranger.submit(queue="off_peak")
    night = {"name": "night", "level": 50, "off_peak": True}
    assert (await api.call("POST", "/v1/queues", json=night)).status_code == 201
    await api.submit(queue="night", delay_tolerance="1h")
    # It may start, but does not fit.
    await api.submit(resources={"cpu": 0.6})
    reason = await api.get(f"/v1/tasks/{patient}/why")
    assert (reason["code"], reason["details"]["off_peak_percent"]) == ("postponed", 70)
    peak = (await api.get("/v1/status"))["peak"]
    assert (peak["kinds"], peak["postponed"]) == (["cpu"], 4)
    assert peak["since"][:19] == reason["details"]["since"][:19]
    assert (await api.get("/v1/status?tenant=default"))["peak"]["postponed"] == 3
    assert (await stranger.get("/v1/status"))["peak"] == {**peak, "postponed": 1}
    assert await agent.finish(ref)
    await agent.start()
    assert (await api.get("/v1/status"))["peak"] is None


async def test_a_tenant_with_nothing_but_postponed_tasks_has_no_fair_share(api, agent, stranger):
    await api.submit(resources={"cpu": 3.5})
    await agent.start()
    await stranger.submit(queue="off_peak")
    assert (await api.get("/v1/tenants/acme"))["fair_share"] is None
    await stranger.submit(resources={"cpu": 2})
    # What tenants hold that do not compete is not divided.
    assert (await api.get("/v1/tenants/acme"))["fair_share"] == 0.125
