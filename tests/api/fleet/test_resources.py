AMOUNTS = {"cpu": 1.5, "memory_mb": 1024, "disk_mb": 0, "iops": 0, "bandwidth_mbps": 0,
           "ports": 0, "extra": {}}  # fmt: skip


async def test_a_reservation_from_first_to_last(api, agent):
    body = {"resources": {"cpu": 1.5, "memory": "1GiB"}, "node": "node-a", "expires_in": "1h"}
    answer = await api.call("POST", "/v1/resources", json=body)
    assert answer.status_code == 201
    made = answer.json()
    path = f"/v1/resources/{made['id']}"
    assert made.pop("expires_at").endswith("Z")
    assert made == {
        "id": made["id"], "kind": "reservation", "tenant": "default", "node": "node-a",
        "resources": AMOUNTS, "task": None,
    }  # fmt: skip
    assert (await api.get("/v1/nodes/node-a"))["free"]["cpu"] == 2.5

    answer = await api.call("PUT", path, json={"resources": {"cpu": 3}, "expires_at": None})
    assert answer.json()["resources"] == {**AMOUNTS, "cpu": 3}
    assert answer.json()["expires_at"] is None
    assert (await api.get(path)) == answer.json()

    assert (await api.call("DELETE", path)).status_code == 204
    assert (await api.refused("GET", path))[0] == 404
    assert (await api.refused("DELETE", path))[0] == 404
    assert (await api.refused("PUT", path, json={"resources": {"cpu": 1}}))[0] == 404


async def test_what_tasks_have_is_listed_too_in_pages(api, agent):
    for _ in range(2):
        await api.call("POST", "/v1/resources", json={"resources": {"cpu": 0.5}})
    task = (await api.submit())["id"]
    await agent.start()
    first = await api.get("/v1/resources?limit=2")
    second = await api.get(f"/v1/resources?limit=2&cursor={first['next_cursor']}")
    found = [(one["kind"], one["task"]) for one in first["items"] + second["items"]]
    assert found == [("task", task), ("reservation", None), ("reservation", None)]
    assert second["next_cursor"] is None
    assert (await api.get(f"/v1/resources/{task}"))["kind"] == "task"


async def test_a_bad_reservation_is_refused(api, agent):
    good = {"resources": {"cpu": 1}}
    for body in (
        {},
        {"resources": {}},
        {"resources": {"memory_mb": 0}},
        {"resources": {"cpu": -1}},
        {**good, "expires_in": 0},
        {**good, "expires_in": "4000d"},
        {**good, "expires_at": "2020-01-01T00:00:00Z"},
        {**good, "expires_in": 5, "expires_at": "2099-01-01T00:00:00Z"},
        {**good, "tenant": "x"},
    ):
        assert (await api.refused("POST", "/v1/resources", json=body))[0] == 422
    unknown = {**good, "node": "nowhere"}
    assert (await api.refused("POST", "/v1/resources", json=unknown))[0] == 404
    large = {"resources": {"cpu": 5}}
    assert (await api.refused("POST", "/v1/resources", json=large))[0] == 409
    assert (await api.get("/v1/resources"))["items"] == []
