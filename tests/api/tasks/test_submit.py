import asyncio

import httpx
import pytest

from duly.config import RequestSettings, Settings

ANSWER = {
    "id", "name", "status", "tenant", "user", "queue", "scheduling_type", "submitted_at",
    "ready_at", "start_by", "must_start_by", "started_at", "finished_at", "attempt", "failures",
    "losses", "max_attempts", "on_lost", "tier", "resources", "execution_cap", "delay_tolerance",
    "run_at", "priority", "node", "exit_code", "outcome", "reason", "quote", "depends_on", "graph",
    "schedule", "fire_at", "labels", "requires", "concurrency", "category", "idempotency_key",
    "unique", "ref", "progress", "replay_of", "admitted_by", "usage", "enforcement", "command",
    "script_path", "source", "call", "artifact", "env", "stdin", "retry", "on_overdue", "overdue",
    "expected_run_time", "uses", "stages", "parent",
}  # fmt: skip


@pytest.fixture
def settings():
    return Settings(requests=RequestSettings(body_limit=10_000, batch_limit=40_000, batch_tasks=50))


async def test_a_task_is_answered_with_every_field_and_can_be_read_back(api):
    task = await api.submit(
        name="encode", labels={"a": "b"}, env={"X": "1"}, stdin="hi\n", tier="regular",
        execution_cap="10m", delay_tolerance="PT5M", max_attempts=5, on_lost="fail", priority=3,
        resources={"memory": "2GiB", "extra": {"gpu": 1}},
    )  # fmt: skip
    assert task.keys() == ANSWER
    assert task["resources"] == {
        "cpu": 1.0, "memory_mb": 2048, "disk_mb": 2048, "iops": 0, "bandwidth_mbps": 0,
        "ports": 0, "extra": {"gpu": 1},
    }  # fmt: skip
    assert (task["execution_cap"], task["delay_tolerance"]) == (600, 300)
    assert (task["status"], task["tenant"], task["user"]) == ("waiting", "default", "admin")
    assert task["id"].isdigit()
    assert task["submitted_at"].endswith("Z")
    read = await api.get(f"/v1/tasks/{task['id']}")
    assert read.pop("reason")["code"] == "no_nodes"
    assert task.pop("reason") is None
    assert read == task


async def test_jobs_are_tasks(api):
    answer = await api.call("POST", "/v1/jobs", json={"command": ["true"]})
    assert answer.status_code == 201
    task = answer.json()["id"]
    assert (await api.get(f"/v1/jobs/{task}"))["id"] == task
    assert [one["id"] for one in (await api.get("/v1/jobs"))["items"]] == [task]


async def test_a_task_for_later_is_scheduled(api):
    task = await api.submit(run_at="2100-01-01T02:00:00+02:00")
    assert (task["status"], task["run_at"]) == ("scheduled", "2100-01-01T00:00:00Z")
    why = await api.get(f"/v1/tasks/{task['id']}/why")
    assert why["code"] == "not_due"


async def test_the_same_idempotency_key_is_the_same_task(api):
    body = {"command": ["true"], "idempotency_key": "k"}
    first = await api.call("POST", "/v1/tasks", json=body)
    again = await api.call("POST", "/v1/tasks", json=body)
    header = await api.call(
        "POST", "/v1/tasks", json={"command": ["true"]}, headers={"Idempotency-Key": "k"}
    )
    assert (first.status_code, again.status_code, header.status_code) == (201, 200, 200)
    assert first.json()["id"] == again.json()["id"] == header.json()["id"]
    assert again.json().keys() == ANSWER


async def test_another_body_under_the_same_key_is_a_conflict(api):
    task = await api.submit(idempotency_key="k")
    status, error = await api.refused(
        "POST", "/v1/tasks", json={"command": ["false"], "idempotency_key": "k"}
    )
    assert (status, error["code"]) == (409, "idempotency_key_reused")
    assert error["details"]["task"] == task["id"]


async def test_fifty_submits_at_once_under_one_key_make_one_task(api):
    body = {"command": ["true"], "idempotency_key": "k"}
    answers = await asyncio.gather(*(api.call("POST", "/v1/tasks", json=body) for _ in range(50)))
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]


async def test_header_and_field_must_agree(api):
    status, error = await api.refused(
        "POST",
        "/v1/tasks",
        json={"command": ["true"], "idempotency_key": "a"},
        headers={"Idempotency-Key": "b"},
    )
    assert (status, error["details"]["field"]) == (422, "idempotency_key")


async def test_a_bad_header_is_refused(api):
    for values in (["a", "b"], [""], ["x" * 201], [b"\xff"]):
        headers = [("Idempotency-Key", value) for value in values]
        status, error = await api.refused(
            "POST", "/v1/tasks", json={"command": ["true"]}, headers=headers
        )
        assert (status, error["details"]["field"]) == (422, "idempotency_key")


async def test_tenants_do_not_share_idempotency_keys(api, stranger):
    assert (await api.submit(idempotency_key="k"))["id"] != (
        await stranger.submit(idempotency_key="k", command=["false"])
    )["id"]


async def test_a_batch_is_stored_in_order_and_once(api):
    body = {"tasks": [{"command": ["echo", str(n)]} for n in range(20)]}
    headers = {"Idempotency-Key": "batch"}
    first = await api.call("POST", "/v1/tasks/batch", json=body, headers=headers)
    again = await api.call("POST", "/v1/tasks/batch", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    items = (await api.get("/v1/tasks"))["items"]
    assert [one["id"] for one in reversed(items)] == first.json()["ids"]
    assert [one["command"][1] for one in reversed(items)] == [str(n) for n in range(20)]


async def test_a_batch_is_created_if_any_of_its_tasks_is_new(api):
    known, new = ({"command": ["true"], "idempotency_key": key} for key in ("known", "new"))
    answers = [
        await api.call("POST", "/v1/tasks/batch", json={"tasks": tasks})
        for tasks in ([known], [known, new], [known, new])
    ]
    assert [answer.status_code for answer in answers] == [201, 201, 200]


async def test_every_task_of_a_batch_gets_what_it_asks_for_itself(api):
    plain = {"command": ["true"]}
    asked = [
        plain,
        plain | {"priority": 7, "labels": {"n": "1"}, "name": "named"},
        plain | {"priority": 7, "resources": {"cpu": 0.25}},
        plain | {"run_at": "2099-01-01T00:00:00Z", "max_attempts": 9},
        plain | {"resources": {"cpu": 0.25}, "delay_tolerance": 60, "execution_cap": 61},
        plain | {"unique": {"key": "u"}, "on_lost": "fail", "requires": {"zone": "a"}},
        plain,
    ]
    alone = [await api.submit(**one | {"unique": None}) for one in asked]
    answer = await api.call("POST", "/v1/tasks/batch", json={"tasks": asked})
    told = ("name", "labels", "priority", "resources", "max_attempts", "on_lost", "requires")
    told += ("delay_tolerance", "execution_cap", "tier", "status", "command")
    for one, task_id in zip(alone, answer.json()["ids"], strict=True):
        stored = await api.get(f"/v1/tasks/{task_id}")
        assert {field: stored[field] for field in told} == {field: one[field] for field in told}


async def test_a_batch_of_too_many_is_refused(api):
    status, error = await api.refused(
        "POST", "/v1/tasks/batch", json={"tasks": [{"command": ["a"]}] * 51}
    )
    assert (status, error["code"]) == (413, "too_large")


async def chunks(size):
    for _ in range(size // 1000):
        yield b" " * 1000


async def test_a_body_has_a_limit_whether_its_length_is_told_or_not(api):
    for path, limit in (("/v1/tasks", 10_000), ("/v1/tasks/batch", 40_000)):
        for content in (b" " * limit, chunks(limit)):
            assert (await api.refused("POST", path, content=content))[1]["code"] == "malformed"
        for content in (b" " * (limit + 1000), chunks(limit + 1000)):
            status, error = await api.refused("POST", path, content=content)
            assert (status, error["code"]) == (413, "too_large")


async def test_a_body_that_never_ends_is_cut_off_at_the_limit(api):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1000
            yield b" " * 1000

    status, _ = await api.refused("POST", "/v1/tasks", content=endless())
    assert status == 413
    assert sent <= 12_000


async def test_an_untruthful_content_length_is_no_way_around_the_limit(api):
    answer = await api.call(
        "POST", "/v1/tasks", content=b" " * 20_000, headers={"Content-Length": "5"}
    )
    assert answer.status_code == 413
    assert isinstance(answer, httpx.Response)


async def test_a_unique_key_is_refused_or_answered_with_the_task_that_has_it(api):
    first = await api.submit(unique={"key": "k"})
    assert first["unique"] == {"key": "k", "while": "live"}
    assert (await api.get(f"/v1/tasks/{first['id']}"))["unique"] == first["unique"]
    body = {"command": ["true"], "unique": {"key": "k"}}
    status, error = await api.refused("POST", "/v1/tasks", json=body)
    assert (status, error["code"]) == (409, "conflict")
    assert error["details"] == {"task": first["id"], "unique_key": "k"}
    body["unique"]["on_conflict"] = "return"
    answer = await api.call("POST", "/v1/tasks", json=body)
    assert (answer.status_code, answer.json()["id"]) == (200, first["id"])
    answer = await api.call("PATCH", f"/v1/tasks/{first['id']}", json={"unique": None})
    assert answer.json()["unique"] is None
    assert (await api.call("POST", "/v1/tasks", json=body)).status_code == 201


@pytest.mark.parametrize(
    ("unique", "field"),
    [
        ({"key": ""}, "unique.key"),
        ({"key": "k" * 201}, "unique.key"),
        ({"key": "a\0b"}, "unique.key"),
        ({"key": "k", "while": "sleeping"}, "unique.while"),
        ({"key": "k", "on_conflict": "fight"}, "unique.on_conflict"),
    ],
)
async def test_a_unique_key_that_makes_no_sense_is_refused_by_name(api, unique, field):
    body = {"command": ["true"], "unique": unique}
    status, error = await api.refused("POST", "/v1/tasks", json=body)
    assert (status, error["details"]["field"]) == (422, field)
