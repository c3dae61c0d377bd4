"""The reasons of tasks in lists, and what `name` finds."""


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
