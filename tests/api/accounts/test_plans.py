"""Plans over REST: access, validation, and the effect of a change on tasks."""

import asyncio

import pytest

from duly import wire
from duly.model.tenant import Scope
from duly.store.accounts import audit_log

PLAN = {"name": "team", "tasks_per_hour": 100, "burst": 10, "max_execution_cap": "1h"}
WORKS = (Scope.SUBMIT, Scope.READ)


@pytest.fixture
def holder(api, key_for):
    """Make a caller of a tenant with a plan."""

    async def make(plan, *scopes, tenant="acme"):
        key = await key_for(tenant, "kim", *(scopes or WORKS))
        async with api.components.database.connection() as conn:
            await conn.execute("update tenants set plan = $2 where name = $1", tenant, plan)
        return api.with_key(key)

    return make


async def log(api):
    async with api.components.database.connection() as conn:
        return [(one.action, one.target, one.tenant) for one in await audit_log.read(conn)]


async def create(api, **fields):
    answer = await api.call("POST", "/v1/plans", json={**PLAN, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_plan_from_first_to_last(api):
    made = await create(api, max_resources={"cpu": 2, "extra": {"gpu": 1}}, tolerances={"a": "1m"})
    assert await api.get("/v1/plans/team") == made
    assert (made["execution_cap"], made["max_execution_cap"]) == (3600, 3600)
    assert (made["max_resources"], made["tolerances"]) == (
        {"cpu": 2, "extra": {"gpu": 1}},
        {"a": 60},
    )
    assert (made["max_running"], made["tiers"], made["tenants"]) == (None, None, 0)

    changes = {"tiers": ["basic"], "max_resources": None, "price_per_task": 0.00001}
    answer = await api.call("PATCH", "/v1/plans/team", json=changes)
    assert answer.json() == {**made, **changes}
    assert await api.get("/v1/plans/team") == answer.json()

    assert (await api.call("DELETE", "/v1/plans/team")).status_code == 204
    assert (await api.refused("GET", "/v1/plans/team"))[0] == 404
    assert (await api.refused("DELETE", "/v1/plans/team"))[0] == 404
    assert (await api.refused("PATCH", "/v1/plans/team", json=changes))[0] == 404
    assert await log(api) == [
        ("plan.remove", "team", None),
        ("plan.update", "team", None),
        ("plan.create", "team", None),
    ]


async def test_a_plan_may_only_shorten_what_the_server_keeps(api):
    history = api.components.settings.retention.history.total_seconds()
    made = await create(api, retention="7d")
    assert made["retention"] == 7 * 86400
    for change in ({"retention": history}, {"retention": None}, {"retention": "1w"}):
        answer = await api.call("PATCH", "/v1/plans/team", json=change)
        assert answer.status_code == 200, answer.text
    body = {**PLAN, "name": "other", "retention": history + 1}
    for method, path, asked in (
        ("PATCH", "/v1/plans/team", {"retention": history + 1}),
        ("POST", "/v1/plans", body),
    ):
        status, error = await api.refused(method, path, json=asked)
        assert (status, error["details"]["field"]) == (422, "retention")
        assert "is more than the 30 d that the server keeps" in error["message"]
    # What was said while the server kept more is no reason to refuse something else.
    async with api.components.database.connection() as conn:
        await conn.execute("update plans set retention = '400 days' where name = 'team'")
    answer = await api.call("PATCH", "/v1/plans/team", json={"max_running": 3})
    assert (answer.status_code, answer.json()["retention"]) == (200, 400 * 86400)


async def test_plans_are_listed_newest_first_in_pages(api):
    await create(api)
    first = await api.get("/v1/plans?limit=3")
    second = await api.get(f"/v1/plans?limit=3&cursor={first['next_cursor']}")
    names = [one["name"] for one in first["items"] + second["items"]]
    assert names == ["team", "business", "standard", "free", "unlimited"]
    assert second["next_cursor"] is None
    assert [one["tenants"] for one in second["items"]] == [0, 1]


async def test_a_tenant_reads_its_own_plan_and_no_other(api, holder):
    caller = await holder("free", Scope.SUBMIT, Scope.READ, Scope.MANAGE)
    [own] = (await caller.get("/v1/plans"))["items"]
    assert (own["name"], own["tenants"]) == ("free", None)
    assert await caller.get("/v1/plans/free") == own
    unknown = await caller.refused("GET", "/v1/plans/nothing")
    other = await caller.refused("GET", "/v1/plans/business")
    assert unknown[0] == other[0] == 404
    assert other[1]["message"].replace("business", "nothing") == unknown[1]["message"]
    for method, path, body in (
        ("POST", "/v1/plans", PLAN),
        ("PATCH", "/v1/plans/free", {"max_running": 1000}),
        ("DELETE", "/v1/plans/free", None),
    ):
        assert (await caller.refused(method, path, json=body))[0] == 403
    assert await log(api) == []


async def test_a_plan_that_a_tenant_has_is_not_removed(api, holder):
    await create(api)
    await holder("team")
    status, error = await api.refused("DELETE", "/v1/plans/team")
    assert (status, error["code"]) == (409, "conflict")
    assert "1 tenant (acme)" in error["message"]
    assert "duly tenant update NAME --plan PLAN" in error["message"]
    async with api.components.database.connection() as conn:
        await conn.execute("update tenants set removed_at = now() where name = 'acme'")
    status, error = await api.refused("DELETE", "/v1/plans/team")
    assert (status, "cannot be removed" in error["message"]) == (409, True)


async def test_the_first_plan_is_never_removed(api):
    assert (await api.refused("DELETE", "/v1/plans/unlimited"))[0] == 409


async def test_of_two_who_create_one_plan_one_wins(api):
    answers = await asyncio.gather(*(api.call("POST", "/v1/plans", json=PLAN) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]


async def test_of_two_changes_at_once_neither_undoes_the_other(api):
    await create(api)
    changes = [{"max_running": 7}, {"max_waiting": 8}, {"weight": 9}, {"max_schedules": 10}]
    await asyncio.gather(*(api.call("PATCH", "/v1/plans/team", json=one) for one in changes))
    plan = await api.get("/v1/plans/team")
    assert {name: plan[name] for one in changes for name in one} == {
        name: value for one in changes for name, value in one.items()
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x", "burst": 5}, "burst"),
        ({"name": "x", "tiers": ["basc"]}, "tiers"),
        ({"name": "x", "queues": ["periodic"]}, "queues"),
        ({"name": "x", "retention": "1h"}, "retention"),
        ({"name": "x", "max_artifact_bytes": -1}, "max_artifact_bytes"),
        ({"name": "x", "artifact_bytes": -1}, "artifact_bytes"),
        ({"name": "x", "max_execution_cap": "1h", "execution_cap": "2h"}, "execution_cap"),
        ({"name": "a/b"}, "name"),
        ({"name": "x", "max_runing": 1}, "max_runing"),
        ({"name": "x", "max_running": 1.5}, "max_running"),
        ({"name": "x", "max_running": 10**400}, "max_running"),
        ({}, "name"),
    ],
)
async def test_a_bad_plan_is_refused_by_its_field(api, body, field):
    status, error = await api.refused("POST", "/v1/plans", json=body)
    assert (status, error["details"].get("field")) == (422, field)


async def test_a_bad_change_is_refused_and_changes_nothing(api):
    made = await create(api)
    for body in ({}, {"name": "other"}, {"burst": None}, {"tiers": ["none"]}, {"x": 1}):
        assert (await api.refused("PATCH", "/v1/plans/team", json=body))[0] == 422
    assert await api.get("/v1/plans/team") == made


async def test_a_change_of_the_plan_binds_what_is_submitted_next(api, holder):
    await create(api, tolerances={"mail": 30})
    caller = await holder("team")
    task = await caller.submit(category="mail", execution_cap="1h")
    assert (task["delay_tolerance"], task["category"]) == (30, "mail")
    assert (await caller.get(f"/v1/tasks/{task['id']}"))["category"] == "mail"

    changes = {"max_execution_cap": 60, "execution_cap": 30, "tolerances": None, "tiers": ["basic"]}
    assert (await api.call("PATCH", "/v1/plans/team", json=changes)).status_code == 200
    for body, field in (
        ({"execution_cap": 61}, "execution_cap"),
        ({"category": "mail"}, "category"),
        ({"tier": "premium"}, "tier"),
    ):
        status, error = await caller.refused("POST", "/v1/tasks", json={"command": ["x"], **body})
        assert (status, error["details"]["field"]) == (422, field)
        assert "'team'" in error["message"]
    assert (await caller.submit())["execution_cap"] == 30

    path = f"/v1/tasks/{task['id']}"
    kept = (await caller.call("PATCH", path, json={"name": "renamed"})).json()
    assert (kept["name"], kept["execution_cap"], kept["category"]) == ("renamed", 3600, "mail")
    assert (await caller.refused("PATCH", path, json={"execution_cap": "59m"}))[0] == 422


async def test_a_replay_is_bound_by_the_plan_of_today(api, holder):
    await create(api)
    caller = await holder("team")
    task = await caller.submit(execution_cap="1h")
    await caller.call("POST", f"/v1/tasks/{task['id']}/cancel")
    changes = {"max_execution_cap": 60, "execution_cap": 30}
    await api.call("PATCH", "/v1/plans/team", json=changes)
    status, error = await caller.refused("POST", f"/v1/tasks/{task['id']}/replay")
    assert (status, error["details"]["field"]) == (422, "execution_cap")


async def test_agents_keep_as_much_of_a_log_as_the_plan_grants(api, holder, agent):
    await create(api, max_log_bytes=1000)
    caller = await holder("team")
    await caller.submit(idempotency_key="k")
    [start] = (await agent.poll()).start
    assert start.log_limit == 1000
    await api.call("PATCH", "/v1/plans/team", json={"max_log_bytes": None})
    again = {"command": ["true"], "idempotency_key": "k"}
    assert (await caller.call("POST", "/v1/tasks", json=again)).status_code == 200
    await caller.submit()
    [start] = (await agent.poll([start.ref])).start
    assert start.log_limit == api.components.settings.execution.log_limit


async def test_a_result_may_be_as_large_as_the_plan_grants(api, holder, agent):
    await create(api, max_result_bytes=3)
    caller = await holder("team")
    task = await caller.submit(idempotency_key="k")
    [start] = (await agent.poll()).start
    assert start.result_limit == 3
    # Cut by the agent, a byte after the limit: a number still, but another one.
    await agent.finish(start.ref, result=b"1234", result_limit=start.result_limit)
    ended = await caller.get(f"/v1/tasks/{task['id']}")
    assert (ended["status"], ended["reason"]["code"]) == ("done", "result_not_kept")
    assert "it has more than 3 bytes" in ended["reason"]["message"]
    await api.call("PATCH", "/v1/plans/team", json={"max_result_bytes": None})
    again = {"command": ["true"], "idempotency_key": "k"}
    assert (await caller.call("POST", "/v1/tasks", json=again)).status_code == 200
    await caller.submit()
    [start] = (await agent.poll()).start
    assert start.result_limit == api.components.settings.execution.result_limit


async def test_a_plan_with_a_cpu_quota_caps_what_is_submitted_from_then_on(api, holder, join):
    agent = await join(enforcement={"cpu": "weight"})
    assert (await create(api))["cpu_quota"] is False
    caller = await holder("team")
    free = await caller.submit(idempotency_key="k")
    changed = await api.call("PATCH", "/v1/plans/team", json={"cpu_quota": True})
    assert changed.json()["cpu_quota"] is True
    assert (await caller.get("/v1/limits"))["cpu_quota"] is True
    again = {"command": ["true"], "idempotency_key": "k"}
    assert (await caller.call("POST", "/v1/tasks", json=again)).status_code == 200
    bound = await caller.submit()
    held: list[wire.AttemptRef] = []
    caps = {}
    while len(caps) < 2:
        for start in (await agent.poll(held)).start:
            caps[str(start.ref.task)] = start.cpu_quota
            held.append(start.ref)
    assert caps == {free["id"]: False, bound["id"]: True}
    for task, how in ((free, "weight"), (bound, "quota")):
        assert (await caller.get(f"/v1/tasks/{task['id']}"))["enforcement"] == {"cpu": how}


async def test_a_node_without_a_cpu_controller_does_not_claim_to_keep_a_quota(api, holder, join):
    agent = await join(enforcement={"cpu": "none"})
    await create(api, cpu_quota=True)
    caller = await holder("team")
    task = await caller.submit()
    await agent.start()
    assert (await caller.get(f"/v1/tasks/{task['id']}"))["enforcement"] == {"cpu": "none"}


async def test_every_plan_at_the_start_can_be_read_and_written_back(api):
    for plan in (await api.get("/v1/plans"))["items"]:
        told = {
            name: value for name, value in plan.items() if name not in ("created_at", "tenants")
        }
        answer = await api.call("PATCH", f"/v1/plans/{plan['name']}", json=told)
        assert (answer.status_code, answer.json()) == (200, plan)
