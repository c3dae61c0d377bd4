"""Attempts across tasks: their order, filters and pages, and whose they are."""

from datetime import timedelta

import pytest

from duly.config import RetrySettings, Settings
from duly.model.task import Outcome
from duly.model.tenant import Scope
from duly.store.attempts import attempt_list

BIG = {"cpu": 64}
"""More than any node has: such a task waits."""


@pytest.fixture
def settings():
    return Settings(retries=RetrySettings(base_delay=timedelta(0)))


async def listed(api, query=""):
    """Return the attempts of a page as (task, attempt)."""
    page = await api.get(f"/v1/attempts{query}")
    return [(one["task"], one["attempt"]) for one in page["items"]]


async def walk(api, query="", limit=1, cursor=""):
    """Return the attempts of all pages, and how many there are on each."""
    found, sizes = [], []
    while cursor is not None:
        page = await api.get(f"/v1/attempts?limit={limit}{query}{cursor}")
        found += [(one["task"], one["attempt"]) for one in page["items"]]
        sizes.append(len(page["items"]))
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    return found, sizes


async def run(api, agent, outcome=Outcome.SUCCEEDED, exit_code=0, **task):
    """Submit a task, let its first attempt end, and return its id."""
    task_id = (await api.submit(**task))["id"]
    assert await agent.finish(await agent.start(), outcome, exit_code)
    return task_id


async def test_attempts_of_all_tasks_are_listed_newest_lease_first(api, agent):
    first = (await api.submit(name="first", max_attempts=2))["id"]
    lost = await agent.start()
    second = (await api.submit(name="second"))["id"]
    other = next(one.ref for one in (await agent.poll([lost])).start)
    assert await agent.finish(lost, Outcome.FAILED, exit_code=3)
    again = next(one.ref for one in (await agent.poll([other])).start)
    assert (str(again.task), again.attempt) == (first, 2)
    await api.submit(resources=BIG)
    assert await listed(api) == [(first, 2), (second, 1), (first, 1)]
    assert await agent.finish(other)
    assert await agent.finish(again)
    assert await listed(api) == [(first, 2), (second, 1), (first, 1)], "it keeps its place"


async def test_an_item_is_that_of_the_task_with_the_task(api, agent, key_for):
    kim = api.with_key(await key_for("acme", "kim", Scope.SUBMIT, Scope.READ))
    failed = await run(kim, agent, Outcome.FAILED, 3, name="encode", max_attempts=1)
    task = {"task": failed, "name": "encode", "ref": None, "tenant": "acme", "user": "kim"}
    (own,) = (await kim.get(f"/v1/tasks/{failed}/attempts"))["items"]
    assert own["outcome"] == "failed" and own["reason"]["code"] == "exit_code" and own["usage"]
    assert await kim.get("/v1/attempts") == {
        "items": [own | task], "next_cursor": None, "tenant": "acme",
    }  # fmt: skip
    running = (await kim.submit())["id"]
    await agent.start()
    (own,) = (await kim.get(f"/v1/tasks/{running}/attempts"))["items"]
    newest = (await kim.get("/v1/attempts"))["items"][0]
    assert newest == own | task | {"task": running, "name": None}
    assert (newest["outcome"], newest["finished_at"]) == (None, None)


async def test_every_filter_keeps_what_it_names(api, agent, key_for):
    kim = api.with_key(await key_for("default", "kim", Scope.SUBMIT, Scope.READ))
    done = await run(api, agent, name="a")
    failed = await run(api, agent, Outcome.FAILED, 3, name="b", max_attempts=1)
    capped = await run(kim, agent, Outcome.CAPPED, None, name="a", max_attempts=1)
    body = {"tasks": [{"ref": "a", "command": ["true"]}]}
    part = (await api.call("POST", "/v1/graphs", json=body)).json()["ids"]["a"]
    assert await agent.finish(await agent.start())
    running = (await kim.submit(name="c"))["id"]
    await agent.start()
    everything = [running, part, capped, failed, done]
    expected = {
        "": everything,
        "?name=a": [part, capped, done],
        "?name=b": [failed],
        "?name=nobody": [],
        "?user=kim": [running, capped],
        "?user=kim&name=a": [capped],
        "?user=nobody": [],
        "?outcome=succeeded": [part, done],
        "?outcome=failed": [failed],
        "?outcome=failed,capped": [capped, failed],
        "?outcome=capped&outcome=succeeded": [part, capped, done],
        "?outcome=lost": [],
        "?outcome=capped&user=kim": [capped],
        "?outcome=failed&user=kim": [],
        "?outcome=capped&name=a": [capped],
        "?outcome=failed&name=a": [],
        "?since=1h": everything,
        "?since=1h&outcome=failed&name=b": [failed],
        "?since=0": [],
        "?since=0&outcome=failed": [],
        "?since=0&name=a": [],
        "?since=2100-01-01T00:00:00Z": [],
    }
    found = {query: [task for task, _ in await listed(api, query)] for query in expected}
    assert found == expected


@pytest.mark.parametrize("query", ["", "&name=a", "&user=admin", "&outcome=succeeded,failed"])
async def test_pages_together_are_the_list(api, agent, query):
    for exit_code in (0, 1, 0, 1, 0):
        outcome = Outcome.FAILED if exit_code else Outcome.SUCCEEDED
        await run(api, agent, outcome, exit_code, name="a", max_attempts=1)
    whole, _ = await walk(api, query, limit=1000)
    assert len(whole) == 5
    for limit in (1, 2, 5):
        found, sizes = await walk(api, query, limit)
        assert found == whole
        assert len(sizes) == -(-len(whole) // limit), "no page is empty"


async def test_attempts_of_one_task_have_pages_too_oldest_first(api, agent):
    task = (await api.submit(max_attempts=5))["id"]
    for _ in range(4):
        assert await agent.finish(await agent.start(), Outcome.FAILED, 1)
    await agent.start()
    path, sizes, found = f"/v1/tasks/{task}/attempts", [], []
    query = "?limit=2"
    while query is not None:
        page = await api.get(path + query)
        sizes.append(len(page["items"]))
        found += page["items"]
        query = page["next_cursor"] and f"?limit=2&cursor={page['next_cursor']}"
    assert (sizes, [one["attempt"] for one in found]) == ([2, 2, 1], [1, 2, 3, 4, 5])
    assert found == (await api.get(path))["items"]
    assert found[-1]["outcome"] is None
    # A cursor may name any number; beyond the last there is nothing.
    assert (await api.get(f"{path}?cursor=f_________8"))["items"] == []


async def test_attempts_that_end_or_start_meanwhile_do_not_move_the_pages(api, agent):
    old = await run(api, agent)
    running = (await api.submit())["id"]
    ref = await agent.start()
    newest = (await api.submit())["id"]
    await agent.poll([ref])
    first = await api.get("/v1/attempts?limit=1")
    assert await agent.finish(ref)
    await api.submit()
    rest, _ = await walk(api, cursor=f"&cursor={first['next_cursor']}")
    assert [one["task"] for one in first["items"]] == [newest]
    assert rest == [(running, 1), (old, 1)]


async def test_a_read_examines_no_more_than_its_bound_and_says_where_to_go_on(
    api, agent, key_for, monkeypatch
):
    """What matches is found in the end, on pages that may be short."""
    kim = api.with_key(await key_for("default", "kim", Scope.SUBMIT, Scope.READ))
    rare = await run(kim, agent, name="rare")
    for _ in range(5):
        await run(api, agent, name="common")
    await run(api, agent, Outcome.FAILED, 1, name="common", max_attempts=1)
    monkeypatch.setattr(attempt_list, "MAX_EXAMINED", 2)
    monkeypatch.setattr(attempt_list, "MIN_EXAMINED_PER_TENANT", 2)
    assert await walk(api, "&user=kim&tenant=default") == ([(rare, 1)], [0, 0, 0, 1])
    assert (await walk(api, "&name=rare"))[1] == [1], "its tasks are few"
    monkeypatch.setattr(attempt_list, "MAX_NAMED_TASKS", 0)
    assert await walk(api, "&name=rare&tenant=default") == ([(rare, 1)], [0, 0, 0, 1])
    found, sizes = await walk(api, "&name=common&outcome=failed&tenant=default")
    assert (len(found), sizes) == (1, [1])


async def test_an_administrator_lists_the_attempts_of_all_tenants(api, stranger, agent):
    mine = await run(api, agent, name="same")
    theirs = await run(stranger, agent, Outcome.FAILED, 1, name="same", max_attempts=1)
    running = (await stranger.submit(name="same"))["id"]
    await agent.start()
    everything = [(running, 1), (theirs, 1), (mine, 1)]
    for query in ("", "?name=same", "?since=1h"):
        assert await listed(api, query) == everything
    assert (await walk(api))[0] == everything
    page = await api.get("/v1/attempts")
    assert page["tenant"] is None
    assert [one["tenant"] for one in page["items"]] == ["acme", "acme", "default"]
    assert await listed(api, "?outcome=failed") == [(theirs, 1)]
    assert await listed(api, "?tenant=acme") == [(running, 1), (theirs, 1)]
    assert await listed(api, "?tenant=default") == [(mine, 1)]
    for query in ("", "?name=same", "?user=kim"):
        assert await listed(stranger, query) == [(running, 1), (theirs, 1)]
    assert await listed(stranger, "?user=admin") == []
    assert (await stranger.refused("GET", "/v1/attempts?tenant=default"))[0] == 403


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("outcome=oops", "outcome"),
        ("outcome=running", "outcome"),
        ("since=yesterday", "since"),
        ("cursor=x", "cursor"),
        ("cursor=AAAAAAAAAAE", "cursor"),
        ("cursor=" + "_" * 22, "cursor"),
        ("status=done", "status"),
        ("user=a&user=b", "user"),
    ],
)
async def test_what_cannot_be_asked_is_refused(api, query, field):
    status, error = await api.refused("GET", f"/v1/attempts?{query}")
    assert (status, error["details"]["field"]) == (422, field)
