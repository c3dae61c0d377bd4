"""What a key with the scope `admin` sees of all tenants, and what tenants do not see."""

import pytest

import duly
from duly.model.task import Outcome

BIG = {"cpu": 64}
"""More than any node has: such a task waits."""


async def ids(api, query=""):
    return [task["id"] for task in (await api.get(f"/v1/tasks{query}"))["items"]]


async def test_an_administrator_lists_the_tasks_of_all_tenants(api, stranger):
    mine = await api.submit(name="mine", resources=BIG)
    theirs = await stranger.submit(name="theirs", resources=BIG)
    page = await api.get("/v1/tasks")
    assert [(task["id"], task["tenant"]) for task in page["items"]] == [
        (theirs["id"], "acme"), (mine["id"], "default"),
    ]  # fmt: skip
    assert page["tenant"] is None
    narrowed = await api.get("/v1/tasks?tenant=acme")
    assert ([task["id"] for task in narrowed["items"]], narrowed["tenant"]) == (
        [theirs["id"]],
        "acme",
    )
    own = await stranger.get("/v1/tasks")
    assert ([task["id"] for task in own["items"]], own["tenant"]) == ([theirs["id"]], "acme")


async def test_every_filter_works_across_tenants(api, stranger, agent):
    done = []
    for client in (api, stranger):
        done.append((await client.submit(name="done", labels={"of": "day"}))["id"])
        await agent.finish(await agent.start())
    failed = (await stranger.submit(name="failed", max_attempts=1))["id"]
    await agent.finish(await agent.start(), Outcome.FAILED, exit_code=1)
    waiting = [(await client.submit(resources=BIG))["id"] for client in (api, stranger)]
    cancelled = (await stranger.submit(resources=BIG))["id"]
    await stranger.call("POST", f"/v1/tasks/{cancelled}/cancel")
    node = (await api.get("/v1/nodes"))["items"][0]["name"]
    newest_first = sorted([*done, failed, *waiting, cancelled], key=int, reverse=True)
    assert await ids(api) == newest_first
    assert await ids(api, "?name=done") == done[::-1]
    assert await ids(api, "?label=of=day&since=1h") == done[::-1]
    assert await ids(api, "?status=done") == done[::-1]
    assert await ids(api, "?status=failed") == [failed]
    assert await ids(api, "?status=cancelled,failed") == [cancelled, failed]
    assert await ids(api, "?status=waiting") == waiting[::-1]
    assert await ids(api, f"?node={node}") == [failed, *done[::-1]]
    assert await ids(api, "?user=nobody") == []
    assert await ids(api, "?status=waiting,failed&name=failed") == [failed]
    first = await api.get("/v1/tasks?limit=4")
    rest = await api.get(f"/v1/tasks?limit=4&cursor={first['next_cursor']}")
    assert [task["id"] for task in first["items"] + rest["items"]] == newest_first


async def test_an_administrator_finds_any_task_by_its_id(api, stranger, agent):
    ended = (await stranger.submit())["id"]
    await agent.finish(await agent.start())
    waiting = (await stranger.submit(resources=BIG))["id"]
    for path in ("", "/why", "/attempts", "/logs", "/result"):
        answer = await api.call("GET", f"/v1/tasks/{ended}{path}")
        assert answer.status_code == 200, path
    assert (await api.get(f"/v1/jobs/{waiting}?wait=%30"))["tenant"] == "acme"
    assert (await api.refused("GET", f"/v1/tasks/{waiting}?tenant=default"))[0] == 404
    answer = await api.call("POST", f"/v1/tasks/{waiting}/cancel")
    assert (answer.json()["status"], answer.json()["tenant"]) == ("cancelled", "acme")
    again = await api.call("POST", f"/v1/tasks/{ended}/replay")
    assert again.json()["tenant"] == "acme"
    assert (await api.refused("GET", "/v1/tasks/1"))[0] == 404


async def test_a_tenant_does_not_find_the_task_of_an_administrator(api, stranger):
    task = (await api.submit(resources=BIG))["id"]
    for method, path in (("GET", ""), ("GET", "/why"), ("GET", "/logs"), ("POST", "/cancel")):
        assert (await stranger.refused(method, f"/v1/tasks/{task}{path}"))[0] == 404


@pytest.mark.parametrize("verb", ["cancel", "pause"])
async def test_what_changes_many_tasks_stays_in_one_tenant(api, stranger, verb):
    theirs = (await stranger.submit(resources=BIG))["id"]
    mine = (await api.submit(resources=BIG))["id"]
    await api.call("POST", f"/v1/tasks/{verb}", json={"status": "waiting"})
    changed = {"cancel": "cancelled", "pause": "paused"}[verb]
    assert (await api.get(f"/v1/tasks/{mine}"))["status"] == changed
    assert (await api.get(f"/v1/tasks/{theirs}"))["status"] == "waiting"
    await api.call("POST", f"/v1/tasks/{verb}?tenant=acme", json={"status": "waiting"})
    assert (await api.get(f"/v1/tasks/{theirs}"))["status"] == changed


async def test_the_status_counts_the_tasks_of_each_tenant(api, stranger, agent):
    await stranger.submit()
    await agent.finish(await agent.start())
    await stranger.submit(resources={"cpu": 1})
    await agent.start()
    await stranger.submit(resources=BIG)
    await api.submit(resources=BIG)
    await api.submit(run_at="2100-01-01T00:00:00Z")
    status = await api.get("/v1/status")
    nothing = dict.fromkeys(status["tasks"], 0)
    assert status["tenant"] is None
    assert status["tasks"] == nothing | {"waiting": 2, "running": 1, "done": 1, "scheduled": 1}
    assert status["tenants"] == [
        {
            "tenant": "acme",
            "tasks": nothing | {"waiting": 1, "running": 1, "done": 1},
            "share": 0.25,
        },
        {"tenant": "default", "tasks": nothing | {"waiting": 1, "scheduled": 1}, "share": 0.0},
    ]
    narrowed = await api.get("/v1/status?tenant=acme")
    assert (narrowed["tenant"], narrowed["tenants"]) == ("acme", None)
    assert narrowed["tasks"] == status["tenants"][0]["tasks"]


async def test_a_tenant_sees_no_more_of_the_cluster_than_the_server_that_answered(stranger, agent):
    status = await stranger.get("/v1/status")
    assert (status["server"], status["tenant"]) == ("server-0", "acme")
    concealed = (
        "version", "database", "nodes", "capacity", "free", "leader", "audit", "tenants",
    )  # fmt: skip
    assert [status[name] for name in concealed] == [None] * len(concealed)


async def test_the_public_pages_tell_no_version(api):
    public = api.with_key(None)
    assert (await public.get("/v1/openapi.json"))["info"]["version"] == "v1"
    assert f"Duly {duly.__version__}" not in (await public.call("GET", "/docs")).text


async def test_an_administrator_lists_the_allocations_of_all_tenants(api, stranger, agent):
    theirs = (await stranger.submit())["id"]
    await agent.start()
    reservation = (await api.call("POST", "/v1/resources", json={"resources": {"cpu": 1}})).json()
    page = await api.get("/v1/resources")
    found = {(one["id"], one["kind"], one["tenant"]) for one in page["items"]}
    assert found == {(theirs, "task", "acme"), (reservation["id"], "reservation", "default")}
    assert page["tenant"] is None
    narrowed = await api.get("/v1/resources?tenant=acme")
    assert [one["id"] for one in narrowed["items"]] == [theirs]
    assert (await api.get(f"/v1/resources/{theirs}"))["tenant"] == "acme"
    node = reservation["node"]
    assert len((await api.get(f"/v1/resources?node={node}"))["items"]) == 2
    assert (await api.get("/v1/resources?node=nowhere"))["items"] == []
    assert [one["id"] for one in (await stranger.get("/v1/resources"))["items"]] == [theirs]
    assert (await stranger.refused("GET", f"/v1/resources/{reservation['id']}"))[0] == 404
