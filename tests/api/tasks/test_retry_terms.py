"""The field `retry` of a task, wherever tasks are made from."""

import pytest

ASKED = {"delay": "10s", "max_delay": "5m", "no_retry_exit_codes": [4, 3, 4]}
STORED = {"delay": 10.0, "max_delay": 300.0, "no_retry_exit_codes": [3, 4]}


async def retry_of(api, task):
    return (await api.get(f"/v1/tasks/{task}"))["retry"]


async def test_a_task_shows_how_it_asked_to_be_retried(api):
    made = await api.submit(retry=ASKED)
    assert made["retry"] == await retry_of(api, made["id"]) == STORED
    assert (await api.submit())["retry"] is None
    assert (await api.submit(retry={}))["retry"] is None


async def test_an_update_changes_the_parts_that_it_names(api):
    task = (await api.submit(retry=ASKED))["id"]
    for changes, expected in (
        ({"priority": 3}, STORED),
        ({"retry": {"delay": 20}}, STORED | {"delay": 20.0}),
        ({"retry": None}, None),
    ):
        answer = await api.call("PATCH", f"/v1/tasks/{task}", json=changes)
        assert answer.status_code == 200, answer.text
        assert await retry_of(api, task) == expected


async def test_a_replay_is_retried_like_its_task(api):
    task = (await api.submit(retry=ASKED))["id"]
    await api.call("POST", f"/v1/tasks/{task}/cancel")
    answer = await api.call("POST", f"/v1/tasks/{task}/replay")
    assert answer.status_code == 201, answer.text
    assert answer.json()["retry"] == STORED


async def test_tasks_of_batches_and_graphs_have_their_own(api):
    plain = {"command": ["true"]}
    batch = {"tasks": [plain | {"retry": ASKED}, plain]}
    ids = (await api.call("POST", "/v1/tasks/batch", json=batch)).json()["ids"]
    assert [await retry_of(api, task) for task in ids] == [STORED, None]
    graph = {
        "defaults": {"retry": ASKED},
        "tasks": {"a": plain, "b": plain | {"retry": {"delay": 1}}},
    }
    made = (await api.call("POST", "/v1/graphs", json=graph)).json()["ids"]
    assert await retry_of(api, made["a"]) == STORED
    assert (await retry_of(api, made["b"]))["delay"] == 1.0


async def test_an_occurrence_is_retried_as_its_schedule_says(api):
    body = {"name": "n", "task": {"command": ["true"], "retry": ASKED}, "every": "1h"}
    schedule = await api.call("POST", "/v1/schedules", json=body)
    assert schedule.status_code == 201, schedule.text
    path = f"/v1/schedules/{schedule.json()['id']}/run"
    ran = await api.call("POST", path)
    assert ran.status_code == 201, ran.text
    assert ran.json()["retry"] == STORED


async def test_a_repeat_with_another_backoff_is_another_task(api):
    body = {"command": ["true"], "idempotency_key": "k", "retry": ASKED}
    await api.submit(**body)
    same = await api.call("POST", "/v1/tasks", json=body | {"retry": STORED})
    assert same.status_code == 200
    status, error = await api.refused("POST", "/v1/tasks", json=body | {"retry": None})
    assert (status, error["code"]) == (409, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("retry", "field"),
    [
        ({"delay": "soon"}, "retry.delay"),
        ({"delay": "31d"}, "retry.delay"),
        ({"delay": "2m", "max_delay": "1m"}, "retry.max_delay"),
        ({"no_retry_exit_codes": [0]}, "retry.no_retry_exit_codes"),
        ({"no_retry_exit_codes": [256]}, "retry.no_retry_exit_codes"),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_field(api, retry, field):
    body = {"command": ["true"], "retry": retry}
    status, error = await api.refused("POST", "/v1/tasks", json=body)
    assert (status, error["details"]["field"]) == (422, field)
