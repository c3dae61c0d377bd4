"""Pausing and resuming tasks over REST."""

from datetime import timedelta

import pytest

from duly.config import RetrySettings, Settings
from duly.model.task import Outcome


@pytest.fixture
def settings():
    # No backoff is over before it has been looked at, whatever the dice say.
    return Settings(retries=RetrySettings(timedelta(days=365), timedelta(days=365)))


async def post(api, task, verb):
    answer = await api.call("POST", f"/v1/tasks/{task}/{verb}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_task_is_paused_and_resumed_once_for_all(api):
    task = (await api.submit())["id"]
    for _ in range(2):
        paused = await post(api, task, "pause")
        assert (paused["status"], paused["reason"]["code"]) == ("paused", "paused")
    assert [one["id"] for one in (await api.get("/v1/tasks?status=paused"))["items"]] == [task]
    for _ in range(2):
        assert (await post(api, task, "resume"))["status"] == "waiting"
    assert (await api.get("/v1/tasks?status=paused"))["items"] == []


async def test_why_tells_who_paused_a_task_and_how_it_goes_on(api):
    task = (await api.submit())["id"]
    await post(api, task, "pause")
    why = await api.get(f"/v1/tasks/{task}/why")
    assert why["details"]["by"] == "default/admin"
    assert why["message"] == (
        f"Paused by default/admin at {why['details']['paused_at']}. "
        f"Resume it with 'duly resume {task}'."
    )


async def test_why_names_the_graph_that_a_task_was_paused_with(api):
    tasks = {"a": {"command": ["true"]}, "b": {"command": ["true"], "depends_on": ["a"]}}
    made = (await api.call("POST", "/v1/graphs", json={"tasks": tasks})).json()
    await api.call("POST", f"/v1/graphs/{made['id']}/pause")
    why = await api.get(f"/v1/tasks/{made['ids']['b']}/why")
    assert (why["details"]["by"], why["details"]["graph"]) == (None, made["id"])
    assert f"'duly resume --graph {made['id']}'" in why["message"]
    assert why["message"].endswith("After that, it waits for 1 task to end.")


async def test_a_running_task_says_that_it_will_not_be_tried_again(api, agent):
    task = (await api.submit())["id"]
    ref = await agent.start()
    paused = await post(api, task, "pause")
    assert (paused["status"], paused["reason"]["code"]) == ("running", "pause_requested")
    assert await agent.finish(ref, Outcome.FAILED, exit_code=1)
    assert (await api.get(f"/v1/tasks/{task}"))["status"] == "paused"
    assert (await post(api, task, "resume"))["status"] == "scheduled"


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_what_has_ended_is_neither_paused_nor_resumed(api, agent, verb):
    task = (await api.submit())["id"]
    assert await agent.finish(await agent.start())
    status, error = await api.refused("POST", f"/v1/tasks/{task}/{verb}")
    assert (status, error["details"]["status"]) == (409, "done")
    assert error["message"] == f"Task {task} is done; there is nothing left to {verb}."


async def test_what_is_being_cancelled_is_not_paused(api, agent):
    task = (await api.submit())["id"]
    await agent.start()
    await post(api, task, "cancel")
    status, error = await api.refused("POST", f"/v1/tasks/{task}/pause")
    assert (status, error["message"]) == (
        409,
        f"Task {task} is being cancelled; there is nothing left to pause.",
    )


async def test_a_paused_task_is_changed_and_cancelled_and_replayed_only_then(api):
    task = (await api.submit())["id"]
    await post(api, task, "pause")
    answer = await api.call("PATCH", f"/v1/tasks/{task}", json={"priority": 7})
    assert (answer.status_code, answer.json()["status"]) == (200, "paused")
    status, _ = await api.refused("POST", f"/v1/tasks/{task}/replay")
    assert status == 409
    assert (await post(api, task, "cancel"))["status"] == "cancelled"
    answer = await api.call("POST", f"/v1/tasks/{task}/replay")
    assert (answer.status_code, answer.json()["status"]) == (201, "waiting")


async def test_a_filter_pauses_and_resumes_what_it_names_and_nothing_else(api, stranger, agent):
    theirs = (await stranger.submit(name="a", resources={"cpu": 64}))["id"]
    runs = (await api.submit(name="a"))["id"]
    await agent.start()
    named = [(await api.submit(name="a", resources={"cpu": 64}))["id"] for _ in range(2)]
    other = (await api.submit(name="b", resources={"cpu": 64}))["id"]

    async def do(verb, **body):
        answer = await api.call("POST", f"/v1/tasks/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert await do("pause", name="a") == {"paused": 2, "running": 1, "more": False}
    assert await do("pause", name="a") == {"paused": 0, "running": 0, "more": False}
    assert {(await api.get(f"/v1/tasks/{task}"))["status"] for task in named} == {"paused"}
    for task, caller in ((theirs, stranger), (other, api)):
        assert (await caller.get(f"/v1/tasks/{task}"))["status"] == "waiting"
    assert await do("resume", status="paused") == {"resumed": 2, "more": False}
    assert await do("resume", name="a") == {"resumed": 1, "more": False}  # the one that runs
    assert (await api.get(f"/v1/tasks/{runs}/why"))["code"] == "running"
    status, error = await api.refused("POST", "/v1/tasks/pause", json={})
    assert (status, error["message"]) == (
        422,
        "status: say which tasks to pause. Give status, name, label, user, node or since.",
    )
