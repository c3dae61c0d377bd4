"""Workers through the API: who may join as one, what it gets, and who sees it."""

import msgspec
import pytest

from duly import wire
from duly.model.task import Outcome, Reason
from duly.model.tenant import Scope
from duly.store.accounts.tenants import generate_key
from tests.api.conftest import Agent

CALL = {"function": "shop:encode", "args": [1]}
SLOTS = {"extra": {"slots": 2}}


async def ask_to_join(speaker, **fields):
    body = {
        "name": "worker-a",
        "key": generate_key("dulynode"),
        "capacity": SLOTS,
        "functions": ["shop:encode"],
        **fields,
    }
    return await speaker.call("POST", "/v1/nodes", json=body), body["key"]


@pytest.fixture
async def join_worker(api, key_for):
    async def join(tenant="acme", **fields):
        speaker = api.with_key(await key_for(tenant, "node", Scope.NODE))
        answer, key = await ask_to_join(speaker, **fields)
        assert answer.status_code == 201, answer.text
        return Agent(api.with_key(key), wire.JoinResponse(**answer.json()))

    return join


@pytest.fixture
async def acme(api, key_for):
    return api.with_key(await key_for("acme", "kim", Scope.SUBMIT, Scope.READ))


async def submit(speaker, call=CALL, **fields):
    answer = await speaker.call("POST", "/v1/tasks", json={"call": call, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def why(speaker, task):
    return await speaker.get(f"/v1/tasks/{task}/why")


async def test_a_worker_runs_calls_of_its_tenant(acme, join_worker):
    task = await submit(acme)
    assert (await why(acme, task))["code"] == "no_worker"
    worker = await join_worker()
    (assignment,) = (await worker.poll()).start
    assert str(assignment.ref.task) == task
    assert (assignment.payload.call.function, assignment.payload.call.arguments) == (
        "shop:encode",
        '{"args":[1],"kwargs":{}}',
    )
    assert await worker.finish(assignment.ref, result=b"42")
    assert await acme.get(f"/v1/tasks/{task}/result") == 42


async def test_a_worker_runs_no_command_and_an_agent_no_call(api, acme, agent, join_worker):
    worker = await join_worker()
    command, call = (await api.submit())["id"], await submit(acme)
    others = await submit(api)
    assert str((await agent.start()).task) == command
    assert str((await worker.start()).task) == call
    assert (await why(api, others))["code"] == "no_worker"
    assert (await why(api, others))["details"] == {"function": "shop:encode", "workers": 0}


async def test_a_call_waits_for_a_worker_that_knows_it_and_for_a_free_slot(acme, join_worker):
    worker = await join_worker(capacity={"extra": {"slots": 1}})
    other = await submit(acme, {"function": "shop:other"})
    reason = await why(acme, other)
    assert (reason["code"], reason["details"]["workers"]) == ("no_worker", 1)
    await submit(acme)
    await worker.start()
    reason = await why(acme, await submit(acme))
    assert reason["code"] == "no_capacity"
    assert reason["message"].startswith("Worker worker-a is busy: its 1 slot is taken.")


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"functions": None, "capacity": {}}, 422, "functions"),
        ({"functions": ["x" * 201]}, 422, "functions"),
        ({"functions": [" "]}, 422, "functions"),
        ({"functions": ["f"] * 2001}, 422, "functions"),
        ({"capacity": {"cpu": 2}}, 422, "capacity"),
        ({"capacity": {"extra": {"gpu": 1, "slots": 1}}}, 422, "capacity"),
        ({"capacity": {}}, 422, "capacity"),
        ({"capacity": {"extra": {"slots": -1}}}, 422, "capacity.extra.slots"),
        ({"key": None}, 422, "key"),
    ],
)
async def test_a_worker_that_is_none_is_refused(api, key_for, fields, status, field):
    speaker = api.with_key(await key_for("acme", "node", Scope.NODE))
    answer, _ = await ask_to_join(speaker, **fields)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["details"]["field"] == field


async def test_only_a_key_with_the_scope_node_makes_workers(api, key_for, acme):
    answer, _ = await ask_to_join(acme)
    assert answer.status_code == 403
    token = (await api.call("POST", "/v1/node-tokens", json={})).json()["token"]
    answer, _ = await ask_to_join(api.with_key(token))
    assert answer.status_code == 401
    answer, _ = await ask_to_join(api.with_key("unknown"))
    assert answer.status_code == 401


async def test_a_node_comes_back_as_what_it_was_and_nobody_else_takes_its_key(
    api, key_for, agent, join_worker
):
    worker = await join_worker()
    own = {"name": "worker-a", "capacity": SLOTS, "functions": ["shop:other"]}
    again = await worker.api.call("POST", "/v1/nodes", json=own)
    assert again.status_code == 201
    assert again.json()["node"] == worker.joined.node
    as_agent = await worker.api.call("POST", "/v1/nodes", json={"name": "w", "capacity": {}})
    as_worker = await agent.api.call("POST", "/v1/nodes", json={**own, "name": "node-a"})
    assert (as_agent.status_code, as_worker.status_code) == (409, 409)
    key = worker.api.client.headers["authorization"].removeprefix("Bearer ")
    stranger = api.with_key(await key_for("other", "node", Scope.NODE))
    answer, _ = await ask_to_join(stranger, key=key)
    assert answer.status_code == 401


async def test_a_join_whose_response_was_lost_makes_one_worker(api, key_for):
    speaker = api.with_key(await key_for("acme", "node", Scope.NODE))
    first, key = await ask_to_join(speaker)
    again, _ = await ask_to_join(speaker, key=key)
    assert first.json()["node"] == again.json()["node"]
    taken, _ = await ask_to_join(speaker)
    assert taken.status_code == 409


async def test_a_tenant_sees_its_own_workers_and_administrators_all(api, acme, agent, join_worker):
    await join_worker()
    await join_worker("other", functions=["theirs"])
    (own,) = (await acme.get("/v1/nodes"))["items"]
    assert (own["name"], own["tenant"], own["functions"]) == ("worker-a", "acme", ["shop:encode"])
    assert await acme.get("/v1/nodes/worker-a") == own
    assert (await acme.refused("GET", "/v1/nodes/node-a"))[0] == 404
    everything = (await api.get("/v1/nodes"))["items"]
    assert [(node["name"], node["tenant"]) for node in everything] == [
        ("worker-a", "other"),
        ("worker-a", "acme"),
        ("node-a", None),
    ]
    assert everything[-1]["functions"] is None
    theirs = str(everything[0]["id"])
    assert (await acme.refused("GET", f"/v1/nodes/{theirs}"))[0] == 404
    status = await api.get("/v1/status")
    assert (status["nodes"]["ready"], status["capacity"]["extra"]) == (3, {})


async def test_nothing_is_reserved_on_a_worker(api, key_for, join_worker):
    await join_worker()
    manager = api.with_key(await key_for("acme", "kay", Scope.MANAGE, Scope.READ))
    body = {"node": "worker-a", "resources": {"cpu": 0.1}}
    assert (await manager.refused("POST", "/v1/resources", json=body))[0] == 404


async def test_a_worker_offers_another_number_of_slots(acme, join_worker):
    worker = await join_worker(capacity={"extra": {"slots": 0}})
    task = await submit(acme)
    beat = wire.Heartbeat(incarnation=worker.joined.incarnation, held=[], slots=1)
    assert (await worker.send("heartbeat", beat)).status_code == 200
    assert str((await worker.start()).task) == task
    beat = wire.Heartbeat(incarnation=worker.joined.incarnation, held=[], slots=-1)
    assert (await worker.send("heartbeat", beat)).status_code == 422


async def report(worker, ref, **fields):
    ended = wire.AttemptReport(
        ref=ref,
        outcome=Outcome.FAILED,
        ran=0.1,
        reason=Reason("exception", "ValueError: bad height", {"type": "builtins.ValueError"}),
        **fields,
    )
    message = wire.ReportRequest(incarnation=worker.joined.incarnation, reports=[ended])
    answer = await worker.send("report", message)
    assert msgspec.msgpack.decode(answer.content)["accepted"] == [True]


@pytest.mark.parametrize(("on_lost", "status"), [("retry", "waiting"), ("fail", "failed")])
async def test_a_call_that_must_not_begin_twice_is_lost_with_its_process(
    acme, join_worker, on_lost, status
):
    worker = await join_worker()
    task = await submit(acme, on_lost=on_lost)
    ended = wire.AttemptReport(
        ref=await worker.start(),
        outcome=Outcome.PREEMPTED,
        ran=0.1,
        reason=Reason(wire.NEIGHBOR_KILLED, "Its process was killed."),
    )
    await worker.send(
        "heartbeat",
        wire.Heartbeat(incarnation=worker.joined.incarnation, held=[ended.ref], stopping=True),
    )
    message = wire.ReportRequest(incarnation=worker.joined.incarnation, reports=[ended])
    await worker.send("report", message)
    shown = await acme.get(f"/v1/tasks/{task}")
    assert (shown["status"], shown["failures"]) == (status, 0)
    if on_lost == "fail":
        assert shown["reason"]["code"] == "lost"


async def test_a_function_says_when_it_is_retried_and_when_it_is_not(acme, join_worker):
    worker = await join_worker()
    task = await submit(acme)
    await report(worker, await worker.start(), retry_after=3600.0)
    shown = await acme.get(f"/v1/tasks/{task}")
    assert (shown["status"], shown["failures"]) == ("scheduled", 1)
    given_up = await submit(acme)
    await report(worker, await worker.start(), gives_up=True)
    shown = await acme.get(f"/v1/tasks/{given_up}")
    assert (shown["status"], shown["reason"]["code"]) == ("failed", "exception")
    assert shown["reason"]["details"]["given_up"] == "gave_up"
    assert shown["reason"]["message"] == (
        "ValueError: bad height. It is not retried, as its function asked."
    )


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), -1.0, 1e300])
async def test_a_delay_that_no_clock_has_is_bounded(acme, join_worker, delay):
    worker = await join_worker()
    task = await submit(acme)
    await report(worker, await worker.start(), retry_after=delay)
    assert (await acme.get(f"/v1/tasks/{task}"))["status"] in ("scheduled", "waiting", "running")
