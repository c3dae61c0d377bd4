from datetime import UTC, datetime, timedelta

import pytest

TRUE = {"command": ["true"]}
PAST = "2026-01-01T00:00:00Z"


def later(**by):
    return (datetime.now(UTC) + timedelta(**by)).isoformat()


async def call(api, method, path, status, **json):
    answer = await api.call(method, f"/v1/schedules{path}", json=json or None)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_a_schedule_is_told_as_it_was_asked_for_with_its_next_run(api):
    task = {**TRUE, "resources": {"cpu": 0.5}, "unique": {"key": "k"}, "env": {"A": "1"}}
    made = await call(
        api, "POST", "", 201, name="nightly", task=task, daily="06:30", timezone="Asia/Kathmandu"
    )
    told = {key: made[key] for key in ("name", "task", "daily", "misfire", "overlap", "timezone")}
    assert told == {
        "name": "nightly",
        "task": task,
        "daily": "06:30",
        "misfire": "once",
        "overlap": "skip",
        "timezone": "Asia/Kathmandu",
    }
    assert made["next_run_at"].endswith("T00:45:00Z")
    assert (made["paused"], made["jitter"], made["cron"], made["every"]) == (False, 0, None, None)
    assert await call(api, "GET", f"/{made['id']}", 200) == made


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ({"every": "PT3H"}, {"every": 10800}),
        ({"cron": "0 6 * * mon-fri"}, {"cron": "0 6 * * mon-fri"}),
        ({"monthly": "31@06:30"}, {"monthly": "31@06:30", "short_month": "last"}),
        ({"run_at": "2100-01-01T01:00:00+01:00"}, {"run_at": "2100-01-01T00:00:00Z"}),
    ],
)
async def test_each_way_to_say_when_is_told_in_its_own_field(api, when, told):
    made = await call(api, "POST", "", 201, task=TRUE, **when)
    assert {key: made[key] for key in told} == told


async def test_a_bad_expression_is_refused_with_the_position_of_the_mistake(api):
    answer = await call(api, "POST", "", 422, task=TRUE, cron="0 6 * foo *")
    assert answer["error"]["details"] == {"field": "cron", "position": 6}
    answer = await call(api, "POST", "/preview", 422, cron="0 0 31 2 *")
    assert "no year has such a day" in answer["error"]["message"]
    assert answer["error"]["details"] == {"field": "cron", "position": 4}


@pytest.mark.parametrize("after", [PAST, "2100-01-01T00:00:00Z"])
async def test_a_preview_of_what_never_fires_is_refused_wherever_it_begins(api, after):
    answer = await call(api, "POST", "/preview", 422, cron="0 0 31 2 *", after=after)
    assert answer["error"]["details"] == {"field": "cron", "position": 4}


async def test_a_preview_that_begins_after_the_last_fire_time_is_empty(api):
    end = {"daily": "02:30", "end_at": "2050-01-01T00:00:00Z", "after": "2060-01-01T00:00:00Z"}
    assert await call(api, "POST", "/preview", 200, **end) == {"times": []}


async def test_a_preview_stores_nothing(api):
    told = await call(
        api, "POST", "/preview", 200, daily="02:30", timezone="Europe/Berlin", count=2,
        after="2027-03-27T12:00:00Z",
    )  # fmt: skip
    assert told == {"times": ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]}
    assert (await call(api, "GET", "", 200))["items"] == []
    await call(api, "POST", "/preview", 422, daily="02:30", count=0)
    await call(api, "POST", "/preview", 422, daily="02:30", task={})


async def test_schedules_are_listed_by_user_and_by_when_they_are_due(api):
    soon = await call(api, "POST", "", 201, task=TRUE, run_at=later(hours=1))
    late = await call(api, "POST", "", 201, task=TRUE, run_at=later(days=2))

    async def ids(**query):
        answer = await api.call("GET", "/v1/schedules", params=query)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["items"]]

    assert await ids() == [late["id"], soon["id"]]
    assert await ids(due_before=later(days=1)) == [soon["id"]]
    assert await ids(user="nobody") == []
    assert await ids(user=soon["user"]) == [late["id"], soon["id"]]
    await call(api, "POST", f"/{soon['id']}/pause", 200)
    assert await ids(due_before=later(days=1)) == []


async def test_a_schedule_is_changed_paused_resumed_and_removed(api):
    made = await call(api, "POST", "", 201, task=TRUE, daily="06:30")
    path = f"/{made['id']}"
    changed = await call(api, "PATCH", path, 200, cron="0 6 * * *", overlap="queue", name="n")
    assert (changed["daily"], changed["cron"]) == (None, "0 6 * * *")
    moved = await call(api, "PATCH", path, 200, next_run_at="2100-01-01T00:00:00Z")
    assert moved["next_run_at"] == "2100-01-01T00:00:00Z"
    times = await call(api, "GET", f"{path}/next?count=2", 200)
    assert times == {"times": ["2100-01-01T00:00:00Z", "2100-01-01T06:00:00Z"]}
    after = await call(api, "GET", f"{path}/next?count=1&after=2030-01-01T00:00:00Z", 200)
    assert after == {"times": ["2030-01-01T06:00:00Z"]}
    assert (await call(api, "POST", f"{path}/pause", 200))["paused"]
    assert not (await call(api, "POST", f"{path}/resume", 200))["paused"]
    await call(api, "PATCH", path, 422, next_run_at=PAST)
    await call(api, "PATCH", path, 422, unknown=1)
    await call(api, "DELETE", path, 204)
    await call(api, "GET", path, 404)
    await call(api, "GET", f"{path}/next", 404)
    await call(api, "GET", f"{path}/tasks", 404)


async def test_what_a_schedule_has_submitted_says_so_and_is_its_history(api):
    made = await call(api, "POST", "", 201, task=TRUE, every="1h", start_at=PAST, overlap="allow")
    path = f"/{made['id']}"
    start, end = later(hours=-3), later()
    ids = (await call(api, "POST", f"{path}/backfill", 201, start_at=start, end_at=end))["ids"]
    assert len(ids) == 3
    ran = await call(api, "POST", f"{path}/run", 201)
    assert (ran["schedule"], ran["scheduling_type"]) == (made["id"], "every")
    page = await call(api, "GET", f"{path}/tasks?limit=2", 200)
    assert [one["id"] for one in page["items"]] == [ran["id"], ids[-1]]
    rest = await call(api, "GET", f"{path}/tasks?cursor={page['next_cursor']}", 200)
    assert [one["id"] for one in rest["items"]] == ids[1::-1]
    assert rest["items"][0]["fire_at"].endswith(":00:00Z")
    told = await call(api, "GET", f"{path}/occurrences", 200)
    assert [one["task"] for one in told["items"]] == [ran["id"], *ids[::-1]]
    await call(api, "POST", f"{path}/backfill", 409, start_at=start, end_at=end)
    await call(api, "DELETE", path, 204)
    assert await call(api, "GET", f"{path}/occurrences", 200) == told


GRAPH = {"name": "g", "tasks": {"b": {**TRUE, "depends_on": ["a"]}, "a": TRUE}}


async def test_a_schedule_of_a_graph_is_told_with_its_tasks_as_a_list(api):
    made = await call(api, "POST", "", 201, graph=GRAPH, daily="06:30")
    b, a = {**TRUE, "ref": "b", "depends_on": ["a"]}, {**TRUE, "ref": "a"}
    assert (made["task"], made["graph"]) == (None, {"name": "g", "tasks": [b, a]})
    path = f"/{made['id']}"
    changed = await call(api, "PATCH", path, 200, task=TRUE)
    assert (changed["task"], changed["graph"]) == (TRUE, None)
    answer = await call(api, "PATCH", path, 422, graph={"tasks": {"a": {"command": []}}})
    assert answer["error"]["details"]["field"] == "graph.tasks[0].command"
    told = await call(api, "POST", "/preview", 200, graph=GRAPH, daily="02:30", count=2)
    assert len(told["times"]) == 2
    circle = {"tasks": {"a": {**TRUE, "depends_on": ["a"]}}}
    answer = await call(api, "POST", "/preview", 422, graph=circle, daily="02:30")
    assert "a → a" in answer["error"]["message"]


async def test_the_tasks_of_graphs_are_listed_page_by_page(api):
    made = await call(api, "POST", "", 201, graph=GRAPH, every="1h", start_at=PAST, overlap="allow")
    path = f"/{made['id']}"
    end = datetime.fromisoformat(made["next_run_at"]) - timedelta(hours=1)
    start = end - timedelta(hours=1)
    past = {"start_at": start.isoformat(), "end_at": end.isoformat()}
    filled = await call(api, "POST", f"{path}/backfill", 201, **past)
    run = await call(api, "POST", f"{path}/run", 201)
    assert run["ids"].keys() == {"a", "b"}
    fired = (await call(api, "GET", f"{path}/occurrences", 200))["items"]
    assert [one["graph"] for one in fired] == [run["id"], *reversed(filled["ids"])]
    assert {one["task"] for one in fired} == {None}
    seen, cursor = [], ""
    while cursor is not None:
        page = await call(
            api,
            "GET",
            f"{path}/tasks?limit=3&cursor={cursor}".rstrip("=")
            if cursor
            else f"{path}/tasks?limit=3",
            200,
        )
        seen += [(task["graph"], task["ref"]) for task in page["items"]]
        assert {task["schedule"] for task in page["items"]} == {made["id"]}
        cursor = page["next_cursor"]
    assert seen == [(one["graph"], ref) for one in fired for ref in ("a", "b")]
    task = (await api.call("GET", f"/v1/tasks/{run['ids']['b']}")).json()
    assert (task["fire_at"], task["scheduling_type"]) == (fired[0]["fire_at"], "every")
