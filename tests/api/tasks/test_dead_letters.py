import pytest

from duly.model.task import Outcome


@pytest.fixture
async def dead(api, agent):
    """A task that has failed for good."""
    task = await api.submit(name="hopeless", max_attempts=1)
    assert await agent.finish(
        await agent.start(), Outcome.FAILED, exit_code=3, log=b"cannot open \xff\n"
    )
    return task["id"]


async def test_a_task_that_fails_for_good_is_a_dead_letter(api, dead):
    page = await api.get("/v1/dead-letters")
    assert [one["id"] for one in page["items"]] == [dead]
    letter = await api.get(f"/v1/dead-letters/{dead}")
    assert (letter["status"], letter["exit_code"]) == ("failed", 3)
    assert "Exit code 3." in letter["reason"]["message"]
    assert letter["last_attempt"]["exit_code"] == 3
    assert letter["log_tail"] == "cannot open \ufffd\n"


async def test_dead_letters_are_found_by_reason_and_time(api, dead):
    code = (await api.get(f"/v1/dead-letters/{dead}"))["reason"]["code"]
    for query, found in (
        (f"?reason={code}", 1),
        ("?reason=other", 0),
        ("?since=1h", 1),
        ("?since=2100-01-01T00:00:00Z", 0),
    ):
        assert len((await api.get(f"/v1/dead-letters{query}"))["items"]) == found


async def test_dead_letters_come_in_pages(api, agent, dead):
    await api.submit(max_attempts=1)
    ref = await agent.start()
    assert await agent.finish(ref, Outcome.FAILED, exit_code=1)
    first = await api.get("/v1/dead-letters?limit=1")
    second = await api.get(f"/v1/dead-letters?limit=1&cursor={first['next_cursor']}")
    assert [first["items"][0]["id"], second["items"][0]["id"]] == [str(ref.task), dead]
    assert second["next_cursor"] is None


async def test_a_replayed_dead_letter_is_none_any_more(api, dead):
    answer = await api.call("POST", f"/v1/dead-letters/{dead}/replay")
    assert (answer.status_code, answer.json()["replay_of"]) == (201, dead)
    assert (await api.get("/v1/dead-letters"))["items"] == []
    assert (await api.refused("POST", f"/v1/dead-letters/{dead}/replay"))[0] == 404


async def test_a_dead_letter_is_replayed_with_what_it_took_along(api, dead):
    lost = (await api.submit(depends_on=[dead]))["id"]
    path = f"/v1/dead-letters/{dead}/replay"
    assert (await api.refused("POST", path, json={"downstreams": True}))[0] == 422
    answer = await api.call("POST", path, json={"downstream": True})
    new = answer.json()
    assert (answer.status_code, new["replay_of"]) == (201, dead)
    graph = await api.get(f"/v1/graphs/{new['graph']}")
    first, second = graph["tasks"]
    assert (first["id"], second["depends_on"]) == (new["id"], [new["id"]])
    assert (await api.get(f"/v1/tasks/{second['id']}"))["replay_of"] == lost
    assert (await api.refused("POST", path, json={"downstream": True}))[0] == 404


async def test_a_dropped_dead_letter_keeps_its_history(api, dead):
    answer = await api.call("DELETE", f"/v1/dead-letters/{dead}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await api.get(f"/v1/tasks/{dead}"))["status"] == "failed"
    assert (await api.refused("DELETE", f"/v1/dead-letters/{dead}"))[0] == 404


async def test_another_tenants_dead_letter_is_unknown(api, stranger, dead):
    for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/replay")):
        assert (await stranger.refused(method, f"/v1/dead-letters/{dead}{suffix}"))[0] == 404
    assert (await stranger.get("/v1/dead-letters"))["items"] == []
    assert len((await api.get("/v1/dead-letters"))["items"]) == 1


async def test_a_task_that_is_not_dead_is_no_dead_letter(api):
    task = (await api.submit())["id"]
    for method, suffix in (("GET", ""), ("DELETE", "")):
        assert (await api.refused(method, f"/v1/dead-letters/{task}{suffix}"))[0] == 404
