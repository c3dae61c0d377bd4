from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from duly import wire
from duly.model.resources import Resources
from duly.model.task import Outcome
from duly.store.accounts import tenants
from duly.store.accounts.tenants import generate_key

CAPACITY = {"cpu": 4.0, "memory_mb": 8192, "disk_mb": 8192, "iops": 0, "bandwidth_mbps": 0,
            "ports": 0, "extra": {}}  # fmt: skip
KEY = generate_key("dulynode")


async def test_a_node_that_joined_is_listed(api, agent):
    (node,) = (await api.get("/v1/nodes"))["items"]
    heartbeat = node.pop("last_heartbeat_at")
    assert heartbeat.endswith("Z")
    assert node == {
        "id": str(agent.joined.node), "name": "node-a", "status": "ready", "capacity": CAPACITY,
        "free": CAPACITY, "labels": {"zone": "a"}, "tasks": 0,
        "enforcement": {"memory": "sampled"}, "shortage": None, "reported_capacity": None,
        "tenant": None, "functions": None,
    }  # fmt: skip
    assert (await api.get(f"/v1/nodes/{node['id']}"))["name"] == "node-a"
    assert (await api.get("/v1/nodes/node-a"))["id"] == node["id"]


async def test_what_runs_on_a_node_is_not_free(api, agent):
    await api.submit(resources={"cpu": 1.5})
    ref = await agent.start()
    node = await api.get("/v1/nodes/node-a")
    assert (node["tasks"], node["free"]["cpu"], node["free"]["memory_mb"]) == (1, 2.5, 7936)
    assert await agent.finish(ref)
    assert (await api.get("/v1/nodes/node-a"))["free"] == CAPACITY


async def test_a_draining_node_takes_nothing_and_is_drained_when_it_is_empty(api, agent):
    await api.submit()
    ref = await agent.start()
    answer = await api.call("PUT", "/v1/nodes/node-a", json={"drain": True})
    assert (answer.status_code, answer.json()["status"]) == (200, "draining")
    task = (await api.submit())["id"]
    assert (await api.get(f"/v1/tasks/{task}/why"))["code"] == "nodes_draining"
    assert await agent.finish(ref)
    assert (await api.get("/v1/nodes/node-a"))["status"] == "drained"
    answer = await api.call("PUT", "/v1/nodes/node-a", json={"drain": False})
    assert answer.json()["status"] == "ready"
    assert str((await agent.start()).task) == task


async def test_a_bad_change_of_a_node_is_refused(api, agent):
    for body in ({}, {"drain": "yes"}, {"drain": True, "cpu": 3}):
        assert (await api.refused("PUT", "/v1/nodes/node-a", json=body))[0] == 422


async def test_what_a_node_has_can_be_said_while_it_works(api, agent):
    answer = await api.call(
        "PUT", "/v1/nodes/node-a", json={"capacity": {"cpu": 1.5, "memory": "1GiB"}}
    )
    said = {**CAPACITY, "cpu": 1.5, "memory_mb": 1024}
    assert (answer.status_code, answer.json()["capacity"]) == (200, said)
    assert answer.json()["reported_capacity"] == CAPACITY
    answer = await api.call("PUT", "/v1/nodes/node-a", json={"capacity": None, "drain": True})
    assert (answer.json()["capacity"], answer.json()["status"]) == (CAPACITY, "drained")
    assert answer.json()["reported_capacity"] is None
    for capacity in ({"cpu": -1}, {"extra": {"G": 1}}, {"memory": "much"}, {"cpus": 2}):
        refused = await api.refused("PUT", "/v1/nodes/node-a", json={"capacity": capacity})
        assert refused[0] == 422


async def test_a_node_that_is_short_of_something_is_given_no_work_until_it_has_more(api, agent):
    def beat(shortage):
        return wire.Heartbeat(incarnation=agent.joined.incarnation, held=[], shortage=shortage)

    assert (await agent.send("heartbeat", beat("open files"))).status_code == 200
    node = await api.get("/v1/nodes/node-a")
    assert (node["status"], node["shortage"]) == ("ready", "open files")
    task = (await api.submit())["id"]
    why = await api.get(f"/v1/tasks/{task}/why")
    assert (why["code"], why["details"]["short_of"]) == ("nodes_short", "open files")
    assert why["message"] == (
        "Node node-a is short of open files and takes no tasks until it has more."
    )
    assert (await agent.send("heartbeat", beat(None))).status_code == 200
    assert (await agent.start()).task == int(task)
    assert (await api.get(f"/v1/tasks/{task}"))["enforcement"] == {"memory": "sampled"}
    refused = await agent.send("heartbeat", beat("x" * 101))
    assert refused.status_code == 422


async def test_a_node_that_was_removed_is_nowhere_and_not_accepted(api, agent):
    await api.submit()
    ref = await agent.start()
    answer = await api.call("DELETE", "/v1/nodes/node-a")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await api.get("/v1/nodes"))["items"] == []
    assert (await api.refused("DELETE", f"/v1/nodes/{agent.joined.node}"))[0] == 404
    beat = wire.Heartbeat(incarnation=agent.joined.incarnation, held=[ref])
    assert (await agent.send("heartbeat", beat)).status_code == 409
    again = {"name": "node-a", "capacity": {"cpu": 1}}
    assert (await agent.api.refused("POST", "/v1/nodes", json=again))[0] == 401


async def test_an_unknown_node_is_not_found(api):
    for node in ("99", "nowhere", "9" * 30, "%00"):
        for method, body in (("GET", None), ("PUT", {"drain": True})):
            assert (await api.refused(method, f"/v1/nodes/{node}", json=body))[0] in (404, 422)


async def test_a_node_that_left_is_stopped(api, agent):
    answer = await agent.send("leave", wire.LeaveRequest(incarnation=agent.joined.incarnation))
    assert answer.status_code == 204
    node = await api.get("/v1/nodes/node-a")
    assert (node["status"], node["free"]["cpu"]) == ("stopped", 0)
    assert (await api.get("/v1/status"))["nodes"]["stopped"] == 1


async def test_nodes_come_in_pages(api, join):
    for name in ("a", "b", "c"):
        await join(name)
    first = await api.get("/v1/nodes?limit=2")
    second = await api.get(f"/v1/nodes?limit=2&cursor={first['next_cursor']}")
    assert [node["name"] for node in first["items"] + second["items"]] == ["c", "b", "a"]
    assert second["next_cursor"] is None


async def test_a_token_tells_when_it_expires(api):
    answer = await api.call("POST", "/v1/node-tokens", json={"expires_in": "2h"})
    assert answer.status_code == 201
    left = datetime.fromisoformat(answer.json()["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=1.9) < left < timedelta(hours=2.1)
    assert (await api.call("POST", "/v1/node-tokens")).status_code == 201
    for expires_in in (0, "never", "400d", -1):
        status, error = await api.refused(
            "POST", "/v1/node-tokens", json={"expires_in": expires_in}
        )
        assert (status, error["details"]["field"]) == (422, "expires_in")


async def test_a_token_tells_how_many_nodes_it_admits(api):
    for uses, told in ((None, 1), (3, 3), ("unlimited", "unlimited")):
        answer = await api.call("POST", "/v1/node-tokens", json={"uses": uses})
        assert (answer.status_code, answer.json()["uses"]) == (201, told)
    for uses in (0, -1, 10**7, "many", "3", ""):
        status, error = await api.refused("POST", "/v1/node-tokens", json={"uses": uses})
        assert (status, error["details"]["field"]) == (422, "uses")


async def test_a_token_that_is_used_up_says_what_to_do(api):
    token = (await api.call("POST", "/v1/node-tokens")).json()["token"]
    bodies = [
        {"name": name, "capacity": {}, "key": tenants.generate_key("dulynode")} for name in "ab"
    ]
    joined = await api.with_key(token).call("POST", "/v1/nodes", json=bodies[0])
    assert joined.status_code == 201
    status, error = await api.with_key(token).refused("POST", "/v1/nodes", json=bodies[1])
    assert (status, error["code"]) == (401, "unauthenticated")
    assert "'duly node token create'" in error["message"] and "--uses" in error["message"]


async def test_a_bad_join_is_refused(api):
    token = (await api.call("POST", "/v1/node-tokens")).json()["token"]
    for body in (
        {},
        {"name": "a"},
        {"name": "", "capacity": {}},
        {"name": "a\0", "capacity": {}},
        {"name": "a", "capacity": {"cpu": "many"}},
        {"name": "a", "capacity": {}, "labels": {"\0": "x"}},
        {"name": "a", "capacity": {}},
        {"name": "a", "capacity": {}, "key": "short"},
        {"name": "a", "capacity": {}, "key": token},
        {"name": "a", "capacity": {"cpus": 1}, "key": KEY},
        {"name": "a", "capacity": {"cpu": 1}, "zone": "b", "key": KEY},
    ):
        assert (await api.with_key(token).refused("POST", "/v1/nodes", json=body))[0] == 422
    assert (await api.get("/v1/nodes"))["items"] == []


@pytest.mark.parametrize(
    ("capacity", "told"),
    [
        (
            {"cpu": 1.5, "memory": "2GiB", "disk_mb": 7, "ports": 3, "extra": {"gpu": 2}},
            {"cpu": 1.5, "memory_mb": 2048, "disk_mb": 7, "ports": 3, "extra": {"gpu": 2}},
        ),
        ({"cpu_milli": 1500, "memory_mb": 64}, {"cpu": 1.5, "memory_mb": 64}),
    ],
)
async def test_a_node_says_what_it_has_as_tasks_say_what_they_need(api, capacity, told):
    token = (await api.call("POST", "/v1/node-tokens")).json()["token"]
    body = {"name": "n", "capacity": capacity, "key": KEY}
    assert (await api.with_key(token).call("POST", "/v1/nodes", json=body)).status_code == 201
    assert (await api.get("/v1/nodes/n"))["capacity"] == {
        **dict.fromkeys(("disk_mb", "iops", "bandwidth_mbps", "ports"), 0), "extra": {}, **told,
    }  # fmt: skip


async def test_a_capacity_that_cannot_be_is_refused_with_its_field(api, agent):
    for method, path, more in (
        ("PUT", "/v1/nodes/node-a", {}),
        ("POST", "/v1/nodes", {"name": "n"}),
    ):
        for kind, value in (("cpu", -1), ("memory", "much"), ("ports", -1)):
            by = api if method == "PUT" else agent.api
            body = {"capacity": {kind: value}, **more}
            status, error = await by.refused(method, path, json=body)
            assert (status, error["details"]["field"]) == (422, f"capacity.{kind}")


async def test_a_heartbeat_renews_and_repeats_what_is_to_be_ended(api, agent):
    task = (await api.submit())["id"]
    ref = await agent.start()
    await api.call("POST", f"/v1/tasks/{task}/cancel")
    beat = wire.Heartbeat(incarnation=agent.joined.incarnation, held=[ref])
    for _ in range(2):
        renewed = wire.decode((await agent.send("heartbeat", beat)).content, wire.HeartbeatResponse)
        assert renewed.ttl == agent.joined.lease_ttl
        assert [(stop.ref, stop.why) for stop in renewed.stop] == [(ref, "cancelled")]


async def test_an_incarnation_that_was_replaced_is_fenced(api, agent):
    capacity = Resources(cpu_milli=1000)
    answer = await agent.api.call(
        "POST", "/v1/nodes", json={"name": "node-a", "capacity": {"cpu": 1}}
    )
    assert answer.status_code == 201
    assert answer.json()["node"] == agent.joined.node
    beat = wire.Heartbeat(incarnation=agent.joined.incarnation, held=[])
    refused = await agent.send("heartbeat", beat)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "fenced")
    assert (await api.get("/v1/nodes/node-a"))["capacity"]["cpu"] == capacity.cpu_milli / 1000


async def test_a_stale_report_changes_nothing(api, agent):
    task = (await api.submit())["id"]
    ref = await agent.start()
    stale = wire.AttemptRef(ref.task, ref.attempt, ref.token + 1)
    assert not await agent.finish(stale, Outcome.FAILED, exit_code=1)
    assert (await api.get(f"/v1/tasks/{task}"))["status"] == "running"
    assert await agent.finish(ref)
    assert await agent.finish(ref)


async def test_what_is_no_message_is_malformed(agent):
    for path in ("poll", "heartbeat", "report", "logs", "leave"):
        for body in (b"", b"\xc1", b"{}", b"\x80", b"\x91" * 100_000):
            answer = await agent.api.call("POST", f"/v1/gateway/{path}", content=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")


async def test_the_key_of_a_node_does_nothing_for_another(api, agent, join):
    """Whoever stole it and knows every number learns no more than from numbers made up."""
    task = (await api.submit())["id"]
    ref = await agent.start()
    thief = await join("node-b")
    invented = 2**40
    for incarnation in (agent.joined.incarnation, invented):
        thief.joined = msgspec.structs.replace(thief.joined, incarnation=incarnation)
        refused = [
            await thief.send("poll", wire.PollRequest(incarnation=incarnation, held=[ref], wait=0)),
            await thief.send("heartbeat", wire.Heartbeat(incarnation=incarnation, held=[ref])),
            await thief.log(ref, 0, b"forged"),
        ]
        told = [(one.status_code, one.json()["error"]["code"]) for one in refused]
        assert told == [(409, "fenced")] * 3
        assert not await thief.finish(ref, log=b"forged", result=b"1")
        left = await thief.send("leave", wire.LeaveRequest(incarnation=incarnation))
        assert left.status_code == 204
        messages = [one.json()["error"]["message"] for one in refused]
        assert not any(str(number) in text for text in messages for number in (task, incarnation))
    assert (await api.get(f"/v1/tasks/{task}"))["status"] == "running"
    assert await agent.finish(ref, log=b"own")
    logs = await api.call("GET", f"/v1/tasks/{task}/logs")
    assert logs.text == "own"


async def test_the_key_of_a_node_and_a_join_token_open_no_route_of_clients(api, agent):
    task = (await api.submit())["id"]
    token = (await api.call("POST", "/v1/node-tokens", json={})).json()["token"]
    for caller in (agent.api, api.with_key(token)):
        for method, path in (
            ("GET", f"/v1/tasks/{task}"),
            ("GET", f"/v1/tasks/{task}/logs"),
            ("GET", "/v1/nodes"),
            ("POST", "/v1/node-tokens"),
        ):
            assert (await caller.refused(method, path))[0] == 401, path
    poll = wire.encode(wire.PollRequest(incarnation=agent.joined.incarnation, held=[], wait=0))
    assert (await api.with_key(token).refused("POST", "/v1/gateway/poll", content=poll))[0] == 401
    assert (await api.refused("POST", "/v1/gateway/poll", content=poll))[0] == 401
