"""Queues: administrators manage them, everyone may ask for them."""

import pytest

from duly.model.task import Outcome
from tests.api.people import create, remove, update, with_new_key

BUILT_IN = ["urgent", "periodic", "delayable", "off_peak"]
BIG = {"resources": {"cpu": 64}}


async def named(api, name="bulk", **fields):
    """Create a queue, and return it."""
    return await create(api, "/v1/queues", **{"name": name, "level": 50, **fields})


async def queues(api, **params):
    """Return the queues by name, in the order of the list."""
    listed = await api.get("/v1/queues", params=params)
    return {queue["name"]: queue for queue in listed["items"]}


async def post(api, path):
    answer = await api.call("POST", path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def audit(api):
    entries = (await api.get("/v1/audit"))["items"]
    return [
        (entry["action"], entry["target"], entry["details"])
        for entry in reversed(entries)
        if entry["action"].startswith("queue.")
    ]


async def test_a_queue_is_created_changed_paused_resumed_and_removed_with_a_trace(api):
    made = await named(api, max_share="30%", hours="22:00-06:00", timezone="Europe/Berlin")
    assert made == {
        "name": "bulk",
        "level": 50,
        "built_in": False,
        "off_peak": False,
        "max_share": 0.3,
        "hours": "22:00-06:00",
        "timezone": "Europe/Berlin",
        "paused": False,
        "paused_by": None,
        "paused_at": None,
        "waiting": 0,
        "oldest_wait": None,
        "in_per_minute": 0.0,
        "out_per_minute": 0.0,
    }
    assert list(await queues(api)) == [*BUILT_IN, "bulk"]
    changed = await update(api, "/v1/queues/bulk", level=10, hours=None)
    assert (changed["level"], changed["hours"], changed["max_share"]) == (10, None, 0.3)
    assert list(await queues(api)) == ["urgent", "bulk", *BUILT_IN[1:]]
    paused = await post(api, "/v1/queues/bulk/pause")
    assert (paused["paused"], paused["paused_at"] is not None) == (True, True)
    assert await post(api, "/v1/queues/bulk/pause") == paused
    resumed = await post(api, "/v1/queues/bulk/resume")
    assert (resumed["paused"], resumed["paused_by"]) == (False, None)
    await remove(api, "/v1/queues/bulk")
    assert (await api.refused("GET", "/v1/queues/bulk"))[0] == 404
    fields = {"off_peak": False, "max_share": 0.3}
    assert await audit(api) == [
        ("queue.create", "bulk", {"level": 50, **fields, "hours": "22:00-06:00 Europe/Berlin"}),
        (
            "queue.update",
            "bulk",
            {"level": [50, 10], "hours": ["22:00-06:00 Europe/Berlin", None]},
        ),
        ("queue.pause", "bulk", {}),
        ("queue.resume", "bulk", {"paused_by": paused["paused_by"]}),
        ("queue.remove", "bulk", {"level": 10, **fields}),
    ]


async def test_a_task_asks_for_a_queue_by_name_and_an_unknown_one_is_refused_with_the_list(api):
    await named(api)
    await named(api, "night", off_peak=True)
    assert (await api.submit(queue="bulk"))["queue"] == "bulk"
    task = await api.submit(queue="night")
    assert (task["queue"], task["delay_tolerance"]) == ("night", 12 * 3600)
    for name in ("gone", "periodic"):
        _, error = await api.refused("POST", "/v1/tasks", json={"command": ["x"], "queue": name})
        assert error["message"] == (
            f"queue: '{name}' is not a queue that tasks can ask for. Use urgent, off_peak, bulk or "
            "night, or leave it out."
        )


async def test_the_plan_decides_which_queues_a_tenant_may_ask_for(api):
    await named(api)
    await create(api, "/v1/tenants", name="acme", plan="free")
    tenant = await with_new_key(api, "submit", "read")
    _, error = await tenant.refused("POST", "/v1/tasks", json={"command": ["x"], "queue": "bulk"})
    assert "does not include the queue 'bulk'" in error["message"]
    await update(api, "/v1/plans/free", queues=["off_peak", "bulk"])
    assert (await tenant.submit(queue="bulk"))["queue"] == "bulk"
    status, error = await api.refused("DELETE", "/v1/queues/bulk")
    assert (status, error["details"]["plans"]) == (409, ["free"])
    for name in ("periodic", "gone"):
        _, error = await api.refused("PATCH", "/v1/plans/free", json={"queues": [name]})
        assert error["message"] == (
            f"queues: '{name}' is not a queue that tasks can ask for. Use urgent, off_peak or bulk."
        )


async def test_a_queue_in_use_or_built_in_is_not_removed(api):
    await named(api)
    task = await api.submit(queue="bulk", **BIG)
    status, error = await api.refused("DELETE", "/v1/queues/bulk")
    assert (status, error["details"]) == (409, {"live": 1})
    assert (await api.call("POST", f"/v1/tasks/{task['id']}/cancel")).status_code == 200
    await remove(api, "/v1/queues/bulk")
    for name in BUILT_IN:
        assert (await api.refused("DELETE", f"/v1/queues/{name}"))[0] == 409
        status, error = await api.refused("PATCH", f"/v1/queues/{name}", json={"level": 9})
        assert (status, "keeps its level" in error["message"]) == (422, True)
    assert (await update(api, "/v1/queues/delayable", max_share=0.5))["max_share"] == 0.5


@pytest.mark.parametrize(
    "body",
    [
        {"task": {"command": ["true"], "queue": "bulk"}},
        {"graph": {"tasks": [{"ref": "a", "command": ["true"], "queue": "bulk"}]}},
        {"graph": {"tasks": {"a": {"command": ["true"], "queue": "bulk"}}}},
        {"graph": {"defaults": {"queue": "bulk"}, "tasks": [{"ref": "a", "command": ["true"]}]}},
    ],
)
async def test_a_queue_that_a_schedule_asks_for_is_not_removed(api, body):
    await named(api)
    await create(api, "/v1/schedules", name="other", every="1h", task={"command": ["bulk"]})
    await create(api, "/v1/schedules", name="nightly", daily="06:30", **body)
    status, error = await api.refused("DELETE", "/v1/queues/bulk")
    assert (status, error["details"]) == (409, {"schedules": ["nightly"]})
    assert "'bulk' is asked for by schedules: nightly. Give them" in error["message"]
    await remove(api, "/v1/schedules/nightly")
    await remove(api, "/v1/queues/bulk")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "", {"name": "bulk", "level": 5}, 409, "There is a queue 'bulk' already."),
        ("POST", "", {"name": "urgent", "level": 5}, 409, "There is a queue 'urgent' already."),
        ("POST", "", {"name": "x", "level": 0}, 422, "level: 0 is not a number from 1 to 99."),
        ("POST", "", {"name": "x"}, 422, "level"),
        ("PATCH", "/bulk", {}, 422, "there is nothing to change"),
        ("PATCH", "/bulk", {"level": None}, 422, "level: it is missing."),
        ("PATCH", "/bulk", {"off_peak": True}, 422, "off_peak"),
        ("PATCH", "/gone", {"level": 5}, 404, "There is no queue 'gone'."),
        ("POST", "/gone/pause", None, 404, "There is no queue 'gone'."),
        ("POST", "/gone/resume", None, 404, "There is no queue 'gone'."),
        ("DELETE", "/gone", None, 404, "There is no queue 'gone'."),
    ],
)
async def test_what_cannot_be_is_refused(api, method, path, body, status, words):
    await named(api)
    told, error = await api.refused(method, f"/v1/queues{path}", json=body)
    assert (told, words in error["message"]) == (status, True), error


async def test_there_are_no_more_queues_than_the_metrics_may_have_labels(api):
    for number in range(46):
        await named(api, f"q{number}")
    status, error = await api.refused("POST", "/v1/queues", json={"name": "q46", "level": 5})
    assert (status, error["message"]) == (
        409,
        "There are 50 queues, which is the limit. Remove one first.",
    )


async def test_why_tells_of_a_paused_queue_until_it_is_resumed(api, agent):
    await named(api)
    await post(api, "/v1/queues/bulk/pause")
    task = await api.submit(queue="bulk", delay_tolerance=0)
    why = await api.get(f"/v1/tasks/{task['id']}/why")
    assert why["code"] == "queue_paused"
    assert "'duly queue resume bulk'" in why["message"]
    listed = (await api.get("/v1/tasks"))["items"]
    assert [each["reason"]["code"] for each in listed] == ["queue_paused"]
    await post(api, "/v1/queues/bulk/resume")
    assert (await agent.start()).task == int(task["id"])


async def test_why_tells_of_a_full_queue(api, agent):
    await named(api, max_share="25%")
    await api.submit(queue="bulk", resources={"cpu": 1})
    await agent.start()
    second = await api.submit(queue="bulk", resources={"cpu": 1})
    why = await api.get(f"/v1/tasks/{second['id']}/why")
    assert (why["code"], why["details"]["limit"], why["details"]["used"]) == ("queue_limit", 1, 1)


async def test_figures_are_of_the_whole_fleet_for_administrators_and_else_of_the_tenant(
    api, stranger, agent
):
    await named(api)
    await named(api, "other", level=60)
    for client in (api, stranger, stranger):
        await client.submit(queue="bulk", **BIG)
    started = await stranger.submit(queue="other")
    ref = await agent.start()
    assert ref.task == int(started["id"])
    whole, own = await queues(api), await queues(stranger)
    assert (whole["bulk"]["waiting"], own["bulk"]["waiting"]) == (3, 2)
    assert (whole["bulk"]["in_per_minute"], own["bulk"]["in_per_minute"]) == (3, 2)
    assert all(0 <= each["bulk"]["oldest_wait"] < 60 for each in (whole, own))
    assert (whole["other"]["out_per_minute"], own["other"]["out_per_minute"]) == (1, 1)
    assert (whole["other"]["waiting"], whole["other"]["oldest_wait"]) == (0, None)
    assert (await queues(api, tenant="acme"))["bulk"]["waiting"] == 2
    assert (await queues(api, tenant="default"))["other"]["out_per_minute"] == 0
    assert await agent.finish(ref)
    assert (await queues(api))["other"]["out_per_minute"] == 1


async def test_a_retry_is_shown_in_its_higher_queue(api, agent):
    task = await api.submit(max_attempts=2, retry={"delay": "1h", "max_delay": "1h"})
    assert task["queue"] == "delayable"
    assert await agent.finish(await agent.start(), Outcome.FAILED, exit_code=3)
    shown = await api.get(f"/v1/tasks/{task['id']}")
    assert (shown["status"], shown["queue"]) == ("scheduled", "periodic")


async def test_metrics_have_the_queues_of_administrators(api):
    await named(api)
    await api.submit(queue="bulk", delay_tolerance="1h", **BIG)
    text = (await api.call("GET", "/metrics")).text
    assert 'duly_tasks_waiting{queue="bulk"} 1.0' in text


async def test_a_tenant_competes_for_shares_only_by_queues_that_may_start_tasks(
    api, stranger, agent
):
    await named(api)
    # The fleet is full, so that nothing of the other tenant runs, whose share would be its own.
    await api.submit(resources={"cpu": 4})
    await agent.start()
    for client, queue in ((api, None), (stranger, "bulk")):
        await client.submit(resources={"cpu": 1}, queue=queue)
    assert (await api.get("/v1/tenants/default"))["fair_share"] == 0.5
    await post(api, "/v1/queues/bulk/pause")
    assert (await api.get("/v1/tenants/default"))["fair_share"] == 1
