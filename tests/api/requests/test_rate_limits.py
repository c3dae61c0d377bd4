from datetime import UTC, datetime, timedelta

import pytest

from duly.model.tenant import Scope
from duly.server.admission.rate_limiter import REFUSED_BY_RATE


@pytest.fixture
async def limited(api, components, key_for):
    """The API for somebody whose plan admits a task in ten seconds, and three at once."""
    key = await key_for("slow", "kim", Scope.SUBMIT, Scope.READ)
    async with components.database.connection() as conn:
        await conn.execute(
            """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                                  tasks_per_hour, burst)
               values ('slow', '5 m', '1 h', '24 h', 1, 360, 3)"""
        )
        await conn.execute("update tenants set plan = 'slow' where name = 'slow'")
    return api.with_key(key)


async def post(api, path="/v1/tasks", **body):
    return await api.call("POST", path, json=body or {"command": ["true"]})


def rate(answer):
    return [answer.headers.get(f"RateLimit-{name}") for name in ("Limit", "Remaining", "Reset")]


async def test_an_answer_says_what_is_left(limited):
    first, second = await post(limited), await post(limited)
    assert (first.status_code, second.status_code) == (201, 201)
    assert rate(first) == ["3", "2", "10"]
    assert rate(second) == ["3", "1", "20"]


async def test_what_is_left_is_told_with_the_limits_too_and_to_nobody_without_a_rate(api, limited):
    assert rate(await limited.call("GET", "/v1/limits")) == ["3", "3", "0"]
    await post(limited)
    assert rate(await limited.call("GET", "/v1/limits")) == ["3", "2", "10"]
    assert rate(await api.call("GET", "/v1/limits")) == [None] * 3


async def test_over_the_limit_it_is_429_with_the_time_to_come_back(limited):
    for _ in range(3):
        assert (await post(limited)).status_code == 201
    # Once by the database, once from memory: both say the same.
    for _ in range(2):
        answer = await post(limited)
        assert answer.status_code == 429
        error = answer.json()["error"]
        assert error["code"] == "limit_exceeded"
        assert error["message"].startswith(
            "Limit exceeded: the plan allows 360 tasks per hour, and at most 3 "
        )
        assert error["details"]["limit"] == "tasks_per_hour"
        assert 1 <= int(answer.headers["Retry-After"]) <= 10
        assert rate(answer)[:2] == ["3", "0"]


async def test_what_cannot_be_admitted_is_refused_before_it_is_looked_at(limited):
    for _ in range(4):
        await post(limited)
    assert (await post(limited, command=[])).status_code == 429
    assert (await post(limited, command=[], idempotency_key="k")).status_code == 422


async def test_a_repeat_is_answered_over_the_limit(limited):
    body = {"command": ["true"], "idempotency_key": "k"}
    first = await post(limited, **body)
    for _ in range(3):
        await post(limited)
    again = await post(limited, **body)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    header = await limited.call(
        "POST", "/v1/tasks", json={"command": ["true"]}, headers={"Idempotency-Key": "k"}
    )
    assert header.status_code == 200
    assert (await post(limited, command=["true"], idempotency_key="new")).status_code == 429


async def test_a_batch_says_what_is_left_and_what_is_too_large(limited):
    task = {"command": ["true"]}
    stored = await post(limited, "/v1/tasks/batch", tasks=[task] * 2)
    assert (stored.status_code, rate(stored)[:2]) == (201, ["3", "1"])
    refused = await post(limited, "/v1/tasks/batch", tasks=[task] * 2)
    assert (refused.status_code, rate(refused)[:2]) == (429, ["3", "1"])
    never = await post(limited, "/v1/tasks/batch", tasks=[task] * 4)
    assert never.status_code == 422
    assert never.json()["error"]["details"] == {"field": "tasks", "limit": "burst", "burst": 3}


async def test_who_has_no_limit_is_told_of_none(api):
    assert rate(await post(api)) == [None, None, None]


async def test_a_replay_is_limited_too(api, limited):
    task = (await post(limited)).json()["id"]
    assert (await limited.call("POST", f"/v1/tasks/{task}/cancel")).status_code == 200
    path = f"/v1/tasks/{task}/replay"
    answers = [await limited.call("POST", path) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert [rate(answer)[1] for answer in answers] == ["1", "0", "0"]


async def test_what_a_schedule_runs_is_refused_as_a_submit_is(limited, components):
    body = {"task": {"command": ["true"]}, "every": "PT1H", "overlap": "allow"}
    schedule = (await post(limited, "/v1/schedules", **body)).json()["id"]
    path, before = f"/v1/schedules/{schedule}/run", REFUSED_BY_RATE._value.get()
    answers = [await limited.call("POST", path) for _ in range(3)]
    async with components.database.connection() as conn:
        tenant_id = await conn.fetchval("select id from tenants where name = 'slow'")
    # As if another server had run them: what is left is then known from the refusal.
    components.rate_limiter.observe({tenant_id: None})
    answers.append(await limited.call("POST", path))
    assert REFUSED_BY_RATE._value.get() == before + 1
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert [rate(answer)[:2] for answer in answers] == [["3", left] for left in "2100"]
    assert 1 <= int(answers[3].headers["Retry-After"]) <= 10
    submitted = (await post(limited)).json()["error"]["details"]
    assert answers[3].json()["error"]["details"].keys() == submitted.keys()


TASK = {"command": ["true"]}
PAIR = {"tasks": [{**TASK, "ref": ref} for ref in "ab"]}


@pytest.mark.parametrize(
    ("what", "asked"),
    [
        ({"task": TASK}, [(4, 422, None), (2, 201, "1"), (4, 429, "1")]),
        ({"graph": PAIR}, [(2, 422, None), (1, 201, "1"), (2, 429, "1")]),
    ],
    ids=["task", "graph"],
)
async def test_a_backfill_that_no_bucket_holds_is_refused_for_good(limited, what, asked):
    start_at = datetime.now(UTC) - timedelta(days=1)
    body = {**what, "every": "PT1H", "start_at": start_at.isoformat()}
    schedule = (await post(limited, "/v1/schedules", **body)).json()["id"]
    for hours, status, left in asked:
        end_at = start_at + timedelta(hours=hours, minutes=-1)
        span = {"start_at": start_at.isoformat(), "end_at": end_at.isoformat()}
        answer = await post(limited, f"/v1/schedules/{schedule}/backfill", **span)
        assert answer.status_code == status, answer.text
        if left is None:
            assert answer.json()["error"]["details"]["limit"] == "burst"
        else:
            assert rate(answer)[:2] == ["3", left]
    assert 1 <= int(answer.headers["Retry-After"]) <= 10
