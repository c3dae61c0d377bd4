"""Marking tasks over REST, and by both clients."""

import pytest

from duly.model.task import Outcome

DONE = {"status": "done", "reason": "seen on the bank's page"}


async def mark(api, task, **body):
    return await api.call("POST", f"/v1/tasks/{task}/mark", json={**DONE, **body})


async def test_a_running_task_is_marked_and_its_report_comes_too_late(api, agent):
    task = (await api.submit())["id"]
    ref = await agent.start()
    for result in ({"paid": 1.50}, "another"):
        answer = await mark(api, task, result=result)
        assert answer.status_code == 200, answer.text
    marked = answer.json()
    assert (marked["status"], marked["reason"]["code"]) == ("done", "marked")
    assert marked["reason"]["details"] == {"by": "default/admin", "reason": DONE["reason"]}
    assert await api.get(f"/v1/tasks/{task}/result") == {"paid": 1.5}
    assert not await agent.finish(ref, Outcome.FAILED, exit_code=1)
    assert (await api.get(f"/v1/tasks/{task}"))["status"] == "done"
    (attempt,) = (await api.get(f"/v1/tasks/{task}/attempts"))["items"]
    assert (attempt["outcome"], attempt["reason"]["code"]) == ("cancelled", "marked")
    (entry,) = (await api.get("/v1/audit?action=task.mark"))["items"]
    assert (entry["target"], entry["actor"]) == (task, "default/admin")


async def test_a_task_marked_as_failed_is_a_dead_letter(api):
    task = (await api.submit())["id"]
    assert (await mark(api, task, status="failed")).json()["status"] == "failed"
    assert [one["id"] for one in (await api.get("/v1/dead-letters"))["items"]] == [task]
    why = await api.get(f"/v1/tasks/{task}/why")
    assert DONE["reason"] in why["message"]


async def test_what_has_ended_otherwise_is_a_conflict(api):
    task = (await api.submit())["id"]
    await api.call("POST", f"/v1/tasks/{task}/cancel")
    status, error = await api.refused("POST", f"/v1/tasks/{task}/mark", json=DONE)
    assert (status, error["details"]["status"]) == (409, "cancelled")
    assert error["message"] == (
        f"Task {task} was cancelled; only a task that has not ended can be marked."
    )


async def test_a_task_of_another_tenant_is_not_found(api, stranger):
    task = (await api.submit())["id"]
    status, _ = await stranger.refused("POST", f"/v1/tasks/{task}/mark", json=DONE)
    assert status == 404
    assert (await api.get(f"/v1/tasks/{task}"))["status"] == "waiting"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**DONE, "status": "cancelled"}, "status"),
        ({"status": "done"}, "reason"),
        ({**DONE, "reason": " "}, "reason"),
        ({**DONE, "reason": "a\0b"}, "reason"),
        ({**DONE, "reason": "x" * 2001}, "reason"),
        ({**DONE, "status": "failed", "result": 1}, "result"),
        ({**DONE, "result": "x" * 300_000}, "result"),
    ],
)
async def test_a_bad_mark_is_refused_and_changes_nothing(api, body, field):
    task = (await api.submit())["id"]
    status, error = await api.refused("POST", f"/v1/tasks/{task}/mark", json=body)
    assert (status, error["details"]["field"]) == (422, field)
    assert (await api.get(f"/v1/tasks/{task}"))["status"] == "waiting"
