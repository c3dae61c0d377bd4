from datetime import UTC, datetime, timedelta

import pytest

from duly.config import RetrySettings, Settings
from duly.model.task import Outcome
from duly.model.tenant import Scope


@pytest.fixture
def settings():
    return Settings(retries=RetrySettings(base_delay=timedelta(0)))


async def ids(api, query=""):
    return [one["id"] for one in (await api.get(f"/v1/tasks{query}"))["items"]]


async def test_pages_together_are_the_list_newest_first(api):
    tasks = [(await api.submit(name=f"n{n}"))["id"] for n in range(7)]
    seen, query = [], "?limit=3"
    for expected in (3, 3, 1):
        page = await api.get(f"/v1/tasks{query}")
        assert len(page["items"]) == expected
        seen += [one["id"] for one in page["items"]]
        query = f"?limit=3&cursor={page['next_cursor']}"
    assert page["next_cursor"] is None
    assert seen == tasks[::-1]


async def test_a_page_that_is_just_full_has_no_next_one(api):
    for _ in range(3):
        await api.submit()
    assert (await api.get("/v1/tasks?limit=3"))["next_cursor"] is None


async def test_tasks_that_come_meanwhile_do_not_move_the_pages(api):
    first = [(await api.submit())["id"] for _ in range(4)]
    page = await api.get("/v1/tasks?limit=2")
    await api.submit()
    rest = await ids(api, f"?limit=2&cursor={page['next_cursor']}")
    assert [one["id"] for one in page["items"]] + rest == first[::-1]


async def test_every_filter_keeps_what_it_names(api, agent, key_for):
    other = api.with_key(await key_for("default", "kim", Scope.SUBMIT, Scope.READ))
    done = (await api.submit(name="a", labels={"x": "1", "y": "2"}))["id"]
    assert await agent.finish(await agent.start())
    failed = (await api.submit(name="b", max_attempts=1))["id"]
    assert await agent.finish(await agent.start(), Outcome.FAILED, exit_code=3)
    running = (await api.submit(name="a", labels={"x": "1"}))["id"]
    await agent.start()
    waiting = (await other.submit(name="c", resources={"cpu": 64}))["id"]
    cancelled = (await api.submit(resources={"cpu": 64}))["id"]
    await api.call("POST", f"/v1/tasks/{cancelled}/cancel")
    scheduled = (await api.submit(run_at="2100-01-01T00:00:00Z"))["id"]

    everything = [scheduled, cancelled, waiting, running, failed, done]
    expected = {
        "": everything,
        "?status=done": [done],
        "?status=failed": [failed],
        "?status=cancelled": [cancelled],
        "?status=waiting": [waiting],
        "?status=running": [running],
        "?status=scheduled": [scheduled],
        "?status=paused": [],
        "?status=running,done": [running, done],
        "?status=running&status=failed,waiting": [waiting, running, failed],
        "?status=scheduled,waiting,running,done,failed,cancelled": everything,
        "?name=a": [running, done],
        "?name=a&status=done": [done],
        "?name=nobody": [],
        "?label=x=1": [running, done],
        "?label=x=1&label=y=2": [done],
        "?label=x=2": [],
        "?label=x=1&status=running": [running],
        "?user=kim": [waiting],
        "?user=kim&status=waiting": [waiting],
        "?user=kim&name=c": [waiting],
        "?user=nobody": [],
        "?node=node-a": [running, failed, done],
        "?node=node-a&status=failed": [failed],
        "?node=nowhere": [],
        "?since=1h": everything,
        "?since=1h&name=a": [running, done],
        "?since=0": [],
        "?since=2100-01-01T00:00:00Z": [],
    }
    assert {query: await ids(api, query) for query in expected} == expected


async def test_since_may_be_a_time_with_an_offset(api):
    task = (await api.submit())["id"]
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for query in (hour_ago, hour_ago.replace("+", "%2B")):
        assert await ids(api, f"?since={query}") == [task]
        assert await ids(api, f"?since={query}&status=waiting") == [task]


async def test_a_list_leaves_out_what_is_too_large_for_it(api):
    await api.submit(command=None, source="#!/bin/sh\n" + "x" * 10_000)
    await api.submit(command=["small"], env={"A": "1"})
    small, large = (await api.get("/v1/tasks"))["items"]
    assert (small["command"], small["env"]) == (["small"], {"A": "1"})
    assert (large["source"], large["env"]) == (None, None)
    assert len((await api.get(f"/v1/tasks/{large['id']}"))["source"]) == 10_010


async def test_another_tenants_tasks_are_in_no_list(api, stranger):
    await api.submit(name="a", labels={"x": "1"})
    for query in ("", "?name=a", "?label=x=1", "?status=waiting", "?user=admin"):
        assert await ids(stranger, query) == []


async def test_an_administrator_may_look_at_another_tenant(api, stranger):
    task = (await stranger.submit(name="theirs"))["id"]
    assert await ids(api) == [task]
    assert await ids(api, "?tenant=acme") == [task]
    assert (await api.get(f"/v1/tasks/{task}?tenant=acme"))["tenant"] == "acme"
    assert await ids(api, "?tenant=default") == []
    status, error = await stranger.refused("GET", "/v1/tasks?tenant=default")
    assert (status, error["code"]) == (403, "forbidden")
    assert (await api.refused("GET", "/v1/tasks?tenant=nobody"))[0] == 404
    for spelling in ("%74enant=acme", "tenan%74=acme"):
        assert await ids(api, f"?{spelling}") == [task]
        assert (await stranger.refused("GET", f"/v1/tasks?{spelling}"))[0] == 403
    assert (await stranger.refused("GET", "/v1/tasks?tenant"))[0] == 403
