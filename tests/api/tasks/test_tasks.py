import asyncio
from datetime import timedelta

import pytest

from duly.api.tasks import tasks
from duly.config import RetrySettings, Settings
from duly.model.task import Outcome

HOUR = timedelta(hours=1)


@pytest.fixture
def settings():
    return Settings(retries=RetrySettings(base_delay=HOUR, max_delay=HOUR))


async def status_of(api, task):
    return (await api.get(f"/v1/tasks/{task}"))["status"]


async def test_a_task_is_told_from_submit_to_done(api, agent):
    task = (await api.submit(name="a"))["id"]
    ref = await agent.start()
    running = await api.get(f"/v1/tasks/{task}")
    assert (running["status"], running["node"], running["attempt"]) == ("running", "node-a", 1)
    assert running["started_at"] is not None
    assert (running["outcome"], running["exit_code"], running["reason"]) == (None, None, None)
    assert (await api.get(f"/v1/tasks/{task}/why"))["code"] == "running"
    assert await agent.finish(ref, result=b'{"answer": 42, "big": 12345678901234567890123}')
    done = await api.get(f"/v1/tasks/{task}")
    assert (done["status"], done["outcome"], done["exit_code"]) == ("done", "succeeded", 0)
    assert (done["node"], done["reason"]) == ("node-a", None)
    assert done["usage"] == {"cpu_seconds": 0.25, "peak_memory_mb": 12.5, "wall_seconds": 0.5}
    assert done["finished_at"] >= done["started_at"] >= done["submitted_at"]
    assert (await api.get(f"/v1/tasks/{task}/why"))["code"] == "done"
    result = await api.call("GET", f"/v1/tasks/{task}/result")
    assert result.text == '{"answer": 42, "big": 12345678901234567890123}'


async def test_a_task_behind_its_concurrency_key_says_so(api, agent):
    only = {"key": "customer-7", "limit": 1}
    first = await api.submit(concurrency=only)
    ref = await agent.start()
    second = await api.submit(concurrency=only)
    reason = await api.get(f"/v1/tasks/{second['id']}/why")
    assert (reason["code"], "customer-7" in reason["message"]) == ("concurrency_limit", True)
    assert (await api.get(f"/v1/tasks/{second['id']}"))["concurrency"] == only
    assert str(ref.task) == first["id"] and await agent.finish(ref)
    assert str((await agent.start()).task) == second["id"]


async def test_a_task_of_a_tenant_at_its_limit_says_so(api, agent, stranger):
    await api.call("POST", "/v1/plans", json={"name": "one", "max_running": 1})
    answer = await api.call("PATCH", "/v1/tenants/acme", json={"plan": "one"})
    assert answer.status_code == 200, answer.text
    await stranger.submit()
    ref = await agent.start()
    second = (await stranger.submit())["id"]
    assert (await stranger.get(f"/v1/tasks/{second}/why"))["code"] == "tenant_limit"
    assert await agent.finish(ref)
    assert str((await agent.start()).task) == second


async def test_a_failed_attempt_is_told_with_when_it_is_tried_again(api, agent):
    task = (await api.submit())["id"]
    assert await agent.finish(await agent.start(), Outcome.FAILED, exit_code=3)
    read = await api.get(f"/v1/tasks/{task}")
    assert (read["status"], read["failures"], read["attempt"]) == ("scheduled", 1, 1)
    assert (read["outcome"], read["exit_code"], read["node"]) == ("failed", 3, None)
    assert read["reason"]["code"] == "retry_backoff"
    assert read["reason"]["message"].startswith(
        "Attempt 1 failed: exit code 3. Attempt 2 is scheduled to start at "
    )
    listed = (await api.get("/v1/tasks"))["items"][0]
    assert listed["reason"] == read["reason"]


async def test_attempts_are_listed_in_order_with_the_running_one(api, join):
    task = (await api.submit())["id"]
    assert (await api.get(f"/v1/tasks/{task}/attempts"))["items"] == []
    agent = await join()
    ref = await agent.start()
    (running,) = (await api.get(f"/v1/tasks/{task}/attempts"))["items"]
    assert (running["attempt"], running["node"], running["outcome"]) == (1, "node-a", None)
    assert await agent.finish(ref, Outcome.FAILED, exit_code=3)
    (ended,) = (await api.get(f"/v1/tasks/{task}/attempts"))["items"]
    assert ended.keys() == running.keys()
    assert (ended["outcome"], ended["exit_code"]) == ("failed", 3)
    assert ended["reason"]["code"] == "exit_code"
    assert ended["usage"]["cpu_seconds"] == 0.25


async def test_wait_answers_as_soon_as_the_task_has_ended(api, agent, components, monkeypatch):
    monkeypatch.setattr(tasks, "POLL_INTERVAL_SECONDS", 60.0)
    task = (await api.submit())["id"]
    ref = await agent.start()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(api.get(f"/v1/tasks/{task}?wait=20"))
        while not components.wakeups.listener_count:
            await asyncio.sleep(0)
        await agent.finish(ref)
    assert waiting.result()["status"] == "done"


async def test_wait_answers_when_its_time_is_over(api):
    task = (await api.submit())["id"]
    assert (await api.get(f"/v1/tasks/{task}?wait=0.1"))["status"] == "waiting"
    for bad in ("26", "-1", "nan", "inf", "long"):
        status, error = await api.refused("GET", f"/v1/tasks/{task}?wait={bad}")
        assert (status, error["details"]["field"]) == (422, "wait")


async def test_a_task_that_waits_can_be_changed(api):
    task = (await api.submit(name="a", priority=1))["id"]
    answer = await api.call(
        "PATCH",
        f"/v1/tasks/{task}",
        json={"name": "b", "priority": None, "resources": {"cpu": 2}, "labels": {"x": "y"}},
    )
    assert answer.status_code == 200, answer.text
    changed = answer.json()
    assert (changed["name"], changed["priority"], changed["labels"]) == ("b", 0, {"x": "y"})
    assert changed["resources"]["cpu"] == 2
    assert changed["resources"]["memory_mb"] == 256
    assert changed["command"] == ["true"]
    later = await api.call("PATCH", f"/v1/tasks/{task}", json={"run_at": "2100-01-01T00:00:00Z"})
    assert later.json()["status"] == "scheduled"


async def test_a_bad_change_is_refused_like_a_bad_submit(api):
    task = (await api.submit())["id"]
    for body, field in (
        ({"nmae": "x"}, "nmae"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"idempotency_key": "k"}, "idempotency_key"),
        ({"status": "done"}, "status"),
    ):
        status, error = await api.refused("PATCH", f"/v1/tasks/{task}", json=body)
        assert (status, error["details"]["field"]) == (422, field)


async def test_a_task_that_has_started_can_not_be_changed(api, agent):
    task = (await api.submit())["id"]
    ref = await agent.start()
    status, error = await api.refused("PATCH", f"/v1/tasks/{task}", json={"name": "x"})
    assert (status, error["code"], error["details"]["status"]) == (409, "conflict", "running")
    assert await agent.finish(ref)
    status, error = await api.refused("PATCH", f"/v1/tasks/{task}", json={"name": "x"})
    assert (status, error["details"]["status"]) == (409, "done")


async def test_a_waiting_task_is_cancelled_at_once_and_once_for_all(api):
    for method, suffix in (("POST", "/cancel"), ("DELETE", "")):
        task = (await api.submit())["id"]
        for _ in range(2):
            answer = await api.call(method, f"/v1/tasks/{task}{suffix}")
            assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
            assert answer.json()["reason"]["code"] == "cancelled"


async def test_a_running_task_is_cancelled_when_its_processes_are_gone(api, agent):
    task = (await api.submit())["id"]
    ref = await agent.start()
    answer = await api.call("POST", f"/v1/tasks/{task}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "running")
    assert answer.json()["reason"]["code"] == "cancel_requested"
    stop = (await agent.poll(held=[ref])).stop[0]
    assert (stop.ref, stop.why) == (ref, "cancelled")
    assert await agent.finish(ref, Outcome.CANCELLED, exit_code=None)
    assert await status_of(api, task) == "cancelled"


async def test_what_is_done_can_not_be_cancelled(api, agent):
    task = (await api.submit())["id"]
    assert await agent.finish(await agent.start())
    status, error = await api.refused("POST", f"/v1/tasks/{task}/cancel")
    assert (status, error["code"], error["details"]["status"]) == (409, "conflict", "done")


async def test_a_filter_cancels_what_it_names_and_nothing_else(api, stranger):
    theirs = (await stranger.submit(name="a"))["id"]
    named = [(await api.submit(name="a"))["id"] for _ in range(3)]
    labelled = (await api.submit(labels={"x": "1"}))["id"]
    later = (await api.submit(run_at="2100-01-01T00:00:00Z"))["id"]
    other = (await api.submit(name="b"))["id"]

    async def cancel(**body):
        answer = await api.call("POST", "/v1/tasks/cancel", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["cancelled"]

    assert await cancel(name="a") == 3
    assert await cancel(name="a") == 0
    assert await cancel(labels={"x": "2"}) == 0
    assert await cancel(label=["x=1"]) == 1
    assert await cancel(status="scheduled") == 1
    assert await cancel(status=["done", "failed"]) == 0
    for task in (*named, labelled, later):
        assert await status_of(api, task) == "cancelled"
    assert await status_of(api, other) == "waiting"
    assert await status_of(stranger, theirs) == "waiting"
    assert await cancel(user="admin", since="1h") == 1


async def test_a_filter_must_say_something(api):
    await api.submit()
    for body in ({}, {"status": []}, {"status": "gone"}, {"nmae": "a"}):
        status, error = await api.refused("POST", "/v1/tasks/cancel", json=body)
        assert (status, error["code"]) == (422, "invalid")
    assert len((await api.get("/v1/tasks?status=waiting"))["items"]) == 1


async def test_a_replay_is_a_new_task_that_is_linked_to_the_old(api, join):
    old = await api.submit(name="a", labels={"x": "1"}, idempotency_key="k")
    status, error = await api.refused("POST", f"/v1/tasks/{old['id']}/replay")
    assert (status, error["details"]["status"]) == (409, "waiting")
    agent = await join()
    assert await agent.finish(await agent.start())
    answer = await api.call("POST", f"/v1/tasks/{old['id']}/replay")
    assert answer.status_code == 201
    new = answer.json()
    assert new["id"] != old["id"]
    assert (new["replay_of"], new["name"], new["labels"]) == (old["id"], "a", {"x": "1"})
    assert new["idempotency_key"] is None


async def test_there_is_no_result_before_the_end_and_null_after_one_without(api, join):
    task = (await api.submit())["id"]
    status, error = await api.refused("GET", f"/v1/tasks/{task}/result")
    assert (status, error["details"]["status"]) == (409, "waiting")
    agent = await join()
    assert await agent.finish(await agent.start())
    assert await api.get(f"/v1/tasks/{task}/result") is None


async def test_a_task_that_is_not_done_has_no_result_and_the_reason_is_given(api, join):
    task = (await api.submit(max_attempts=1))["id"]
    agent = await join()
    assert await agent.finish(await agent.start(), Outcome.FAILED, 3)
    status, error = await api.refused("GET", f"/v1/tasks/{task}/result")
    assert (status, error["code"], error["details"]) == (409, "task_failed", {"status": "failed"})
    assert error["message"].startswith(f"Task {task} has failed and has no result: ")


ROUTES = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/cancel"),
    ("POST", "/replay"),
    ("GET", "/attempts"),
    ("GET", "/logs"),
    ("GET", "/why"),
    ("GET", "/result"),
]


async def test_another_tenants_task_is_as_unknown_as_none(api, stranger):
    task = (await api.submit())["id"]
    other = str(int(task) + 1)
    for method, suffix in ROUTES:
        body = {"json": {}} if method == "PATCH" else {}
        foreign = await stranger.refused(method, f"/v1/tasks/{task}{suffix}", **body)
        unknown = await stranger.refused(method, f"/v1/tasks/{other}{suffix}", **body)
        assert foreign[0] == unknown[0] == 404
        assert foreign[1]["message"].replace(task, other) == unknown[1]["message"]
    assert await status_of(api, task) == "waiting"


async def test_what_is_no_id_is_unknown(api):
    for task in ("0", "x", "-1", "9" * 19, "9" * 40, "1e3", "%00", "1%2F2", "\u0661", "..;"):
        assert (await api.refused("GET", f"/v1/tasks/{task}"))[0] == 404
