"""The reasons of tasks in lists, and what `name` finds."""

from duly.model.tenant import Scope
from duly.store.fleet import fleet_snapshot


async def listed(api, query=""):
    return (await api.get(f"/v1/tasks{query}"))["items"]


async def test_every_task_that_has_not_started_is_listed_with_its_reason(api, agent):
    running = (await api.submit(resources={"cpu": 4}))["id"]
    await agent.start()
    full = (await api.submit(resources={"cpu": 4}))["id"]
    huge = (await api.submit(resources={"cpu": 64}))["id"]
    later = (await api.submit(run_at="2099-01-01T00:00:00Z"))["id"]
    after = (await api.submit(depends_on=[later]))["id"]
    codes = {task["id"]: task["reason"] and task["reason"]["code"] for task in await listed(api)}
    assert codes == {
        running: None,
        full: "no_capacity",
        huge: "no_node_can_fit",
        later: "not_due",
        after: "upstream_running",
    }
    for task in (full, huge, later, after):
        assert (await api.get(f"/v1/tasks/{task}/why"))["code"] == codes[task]
    assert (await api.get(f"/v1/tasks/{full}/why"))["details"]["position"] == 1


async def test_a_list_of_all_tenants_reads_the_fleet_once_and_explains_each_by_its_limits(
    api, agent, key_for, monkeypatch
):
    await api.call("POST", "/v1/plans", json={"name": "one", "max_running": 1})
    reasons = {}
    for tenant, cpu, code in (
        ("limited", 1, "tenant_limit"),
        ("free", 4, "no_capacity"),
        ("suspended", 4, "tenant_suspended"),
        ("huge", 64, "no_node_can_fit"),
    ):
        client = api.with_key(await key_for(tenant, "kim", Scope.SUBMIT))
        if tenant == "limited":
            await api.call("PATCH", "/v1/tenants/limited", json={"plan": "one"})
            await client.submit(resources={"cpu": 2})
            await agent.start()
        reasons[(await client.submit(resources={"cpu": cpu}))["id"]] = code
    await api.call("POST", "/v1/tenants/suspended/suspend")
    reads = []
    read = fleet_snapshot.read_snapshot

    async def counting(conn, **options):
        reads.append(set(options.get("tenants", ())))
        return await read(conn, **options)

    monkeypatch.setattr(fleet_snapshot, "read_snapshot", counting)
    waiting = await listed(api, "?status=waiting")
    assert {one["id"]: one["reason"]["code"] for one in waiting} == reasons
    # The scheduler, in the same process, counts those with limits by themselves.
    assert [len(tenants) for tenants in reads if len(tenants) > 2] == [4]


async def test_a_list_finds_a_task_by_its_ref_as_well_as_by_its_name(api):
    body = {"tasks": [{"ref": "encode", "command": ["true"]}, {"command": ["true"]}]}
    answer = await api.call("POST", "/v1/tasks/batch", json=body)
    assert answer.status_code == 201, answer.text
    by_ref = answer.json()["ids"][0]
    by_name = (await api.submit(name="encode"))["id"]
    for query in ("?name=encode", "?name=encode&status=waiting"):
        assert [task["id"] for task in await listed(api, query)] == [by_name, by_ref]


async def test_a_filter_that_cancels_does_not_match_refs(api):
    body = {"tasks": [{"ref": "encode", "command": ["true"]}]}
    assert (await api.call("POST", "/v1/tasks/batch", json=body)).status_code == 201
    answer = await api.call("POST", "/v1/tasks/cancel", json={"name": "encode"})
    assert answer.json()["cancelled"] == 0
