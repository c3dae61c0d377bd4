import pytest

from tests.api.people import create

PAYLOAD = {"command": ["true"], "run_at": "2199-01-01T00:00:00Z"}


async def make_schedule(api, name):
    return await create(api, "/v1/schedules", name=name, task={"command": ["true"]}, every=3600)


async def make_graph(api, name):
    return await create(api, "/v1/graphs", name=name, tasks=[{"ref": "a", **PAYLOAD}])


async def test_a_schedule_is_found_by_its_name_wherever_it_is_by_its_id(api):
    made = await make_schedule(api, "nightly report")
    path = "/v1/schedules/nightly%20report"
    assert (await api.get(path))["id"] == made["id"]
    assert (await api.get(f"{path}/next"))["times"][0] == made["next_run_at"]
    for verb in ("pause", "resume"):
        assert (await api.call("POST", f"{path}/{verb}")).json()["id"] == made["id"]
    ran = await create(api, f"{path}/run")
    assert [one["task"] for one in (await api.get(f"{path}/occurrences"))["items"]] == [ran["id"]]
    assert [one["id"] for one in (await api.get(f"{path}/tasks"))["items"]] == [ran["id"]]
    changed = await api.call("PATCH", path, json={"every": 60})
    assert (changed.json()["id"], changed.json()["every"]) == (made["id"], 60)
    assert (await api.call("DELETE", path)).status_code == 204
    assert (await api.refused("GET", path))[0] == 404


async def test_a_name_that_two_schedules_have_selects_neither(api):
    ids = {(await make_schedule(api, "nightly"))["id"] for _ in range(2)}
    status, error = await api.refused("DELETE", "/v1/schedules/nightly")
    assert (status, set(error["details"]["ids"])) == (409, ids)
    assert "2 schedules are named 'nightly'" in error["message"]


async def test_a_graph_is_found_by_its_name_the_latest_first(api):
    old, new = await make_graph(api, "nightly"), await make_graph(api, "nightly")
    assert (await api.get("/v1/graphs/nightly"))["id"] == new["id"]
    assert (await api.refused("GET", "/v1/graphs/weekly"))[0] == 404
    status, error = await api.refused("POST", "/v1/graphs/nightly/cancel")
    assert (status, error["details"]["ids"]) == (409, [new["id"], old["id"]])
    await api.call("POST", f"/v1/graphs/{new['id']}/cancel")
    cancelled = await api.call("POST", "/v1/graphs/nightly/cancel")
    assert (cancelled.status_code, cancelled.json()["cancelled"]) == (200, 1)
    assert (await api.get(f"/v1/graphs/{old['id']}"))["status"] == "cancelled"


@pytest.mark.parametrize("kind", ["schedules", "graphs"])
async def test_the_name_of_another_tenants_object_selects_nothing(api, kind):
    await create(api, "/v1/tenants", name="acme", plan="standard")
    theirs = await create(api, "/v1/keys", scopes=["submit", "read"], tenant="acme")
    make = make_schedule if kind == "schedules" else make_graph
    await make(api.with_key(theirs["key"]), "nightly")
    assert (await api.refused("GET", f"/v1/{kind}/nightly"))[0] == 404
