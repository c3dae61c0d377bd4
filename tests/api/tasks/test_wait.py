"""One request waits for many tasks."""

import asyncio

import pytest

from duly.api.tasks.wait import MAX_IDS


async def wait(api, *ids, timeout=20.0):
    answer = await api.call("POST", "/v1/tasks/wait", json={"ids": ids, "timeout": timeout})
    assert answer.status_code == 200, answer.text
    return answer.json()["ended"]


async def test_it_responds_when_the_first_of_them_ends(api, agent):
    tasks = [(await api.submit())["id"] for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(wait(api, *tasks))
        ref = await agent.start()
        assert not waiting.done()
        await agent.finish(ref)
    assert waiting.result() == [str(ref.task)]


async def test_tasks_that_have_ended_are_told_at_once_in_the_order_of_the_request(api):
    first, live, second = [(await api.submit())["id"] for _ in range(3)]
    for task in (first, second):
        await api.call("POST", f"/v1/tasks/{task}/cancel")
    assert await wait(api, second, live, first) == [second, first]


async def test_the_list_is_empty_when_the_time_is_over(api):
    task = (await api.submit())["id"]
    assert await wait(api, task, timeout=0.1) == []


async def test_a_task_of_another_tenant_looks_like_one_that_never_was(api, stranger):
    task = (await api.submit())["id"]
    assert await wait(stranger, task, "12345", timeout=0) == [task, "12345"]
    assert await wait(api, task, timeout=0) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ids": []}, "ids"),
        ({"ids": ["1"] * (MAX_IDS + 1)}, "ids"),
        ({"ids": ["1", "x"]}, "ids[1]"),
        ({"ids": ["9" * 19]}, "ids[0]"),
        ({"ids": ["1"], "timeout": 26}, "timeout"),
        ({"ids": ["1"], "timeout": -1}, "timeout"),
        ({"ids": ["1"], "wait": 1}, "wait"),
    ],
)
async def test_what_cannot_be_waited_for_is_refused(api, body, field):
    status, error = await api.refused("POST", "/v1/tasks/wait", json=body)
    assert (status, error["details"]["field"]) == (422, field)
