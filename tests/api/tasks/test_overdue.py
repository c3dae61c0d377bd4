"""Overdue tasks over REST: how they are found, explained and cancelled."""

import asyncio


async def until_overdue(api, task):
    """Wait until the leader has found a task to be overdue, and return it."""
    while not (shown := await api.get(f"/v1/tasks/{task}"))["overdue"]:
        await asyncio.sleep(0.05)
    return shown


async def test_an_overdue_task_is_listed_counted_and_explained(api, stranger, agent):
    await api.submit(resources={"cpu": 3}, execution_cap="1h")
    while not (await api.get("/v1/status"))["tasks"]["running"]:
        await asyncio.sleep(0.05)
    patient = await api.submit(resources={"cpu": 2}, delay_tolerance="1h")
    late = await api.submit(resources={"cpu": 2}, delay_tolerance=0)
    assert (late["overdue"], late["on_overdue"]) == (False, "wait")
    shown = await until_overdue(api, late["id"])
    assert shown["status"] == "waiting"
    listed = (await api.get("/v1/tasks?overdue=true"))["items"]
    assert [(task["id"], task["overdue"]) for task in listed] == [(late["id"], True)]
    of_tenant = (await api.get("/v1/tasks?overdue=true&tenant=default"))["items"]
    assert [task["id"] for task in of_tenant] == [late["id"]]
    assert (await api.get("/v1/tasks?overdue=true&status=running"))["items"] == []
    assert {task["id"] for task in (await api.get("/v1/tasks?status=waiting"))["items"]} == {
        patient["id"],
        late["id"],
    }
    assert (await api.get("/v1/status"))["overdue"] == 1
    assert (await stranger.get("/v1/status"))["overdue"] == 0
    assert (await stranger.get("/v1/tasks?overdue=true"))["items"] == []
    why = await api.get(f"/v1/tasks/{late['id']}/why")
    assert why["code"] == "no_capacity"
    assert "Waiting for 2 CPUs" in why["message"]
    assert "It has been overdue since 20" in why["message"]
    assert 3000 < why["details"]["retry_after"] <= 3600
    assert "overdue" not in (await api.get(f"/v1/tasks/{patient['id']}/why"))["message"]
    by_id = {task["id"]: task for task in (await api.get("/v1/tasks?status=waiting"))["items"]}
    assert "overdue_since" in by_id[late["id"]]["reason"]["details"]
    assert "overdue_since" not in by_id[patient["id"]]["reason"]["details"]


async def test_a_task_cancelled_as_overdue_tells_when_to_try_again_and_is_still_overdue(api):
    task = await api.submit(delay_tolerance=0, on_overdue="cancel", command=["x" * 5000])
    assert task["on_overdue"] == "cancel"
    ended = await api.get(f"/v1/tasks/{task['id']}?wait=25")
    assert (ended["status"], ended["overdue"]) == ("cancelled", True)
    assert ended["reason"]["code"] == "overdue"
    assert ended["reason"]["details"]["retry_after"] == 1
    (listed,) = (await api.get("/v1/tasks?overdue=true&status=cancelled"))["items"]
    assert (listed["id"], listed["on_overdue"]) == (task["id"], None)


async def test_what_to_do_when_overdue_can_be_changed_and_is_kept_by_a_replay(api):
    task = await api.submit(delay_tolerance="1h")
    changed = await api.call("PATCH", f"/v1/tasks/{task['id']}", json={"on_overdue": "cancel"})
    assert changed.json()["on_overdue"] == "cancel"
    await api.call("POST", f"/v1/tasks/{task['id']}/cancel")
    again = await api.call("POST", f"/v1/tasks/{task['id']}/replay")
    assert again.json()["on_overdue"] == "cancel"
    assert not (await api.get(f"/v1/tasks/{task['id']}"))["overdue"]
