"""Stages that attempts record, and children that they submit, with the key of the attempt."""

import msgspec
import pytest

from duly.model import attempt_key
from duly.model.task import Outcome
from duly.store.attempts import stages

STAGES = "/v1/attempt/stages"
CHILD = {"command": ["true"], "idempotency_key": "child", "name": "child"}


@pytest.fixture
async def running(api, agent):
    """A task that runs, and the API for who speaks for its attempt."""
    task = (await api.submit(max_attempts=5, retry={"delay": 0}))["id"]
    ref = await agent.start()
    return task, ref, api.with_key(await agent.attempt_key(ref))


async def again(api, agent, ref):
    """Let the attempt fail; return who speaks for the next one."""
    assert await agent.finish(ref, Outcome.FAILED, 1)
    return api.with_key(await agent.attempt_key(await agent.start()))


async def save(speaker, name, body):
    return await speaker.call("PUT", f"{STAGES}/{name}", content=body)


async def test_a_stage_is_recorded_once_and_later_attempts_read_it(api, agent, running):
    task, ref, speaker = running
    assert (await save(speaker, "a", b'{"x": 1.10}')).text == '{"x": 1.10}'
    assert (await save(speaker, "b%2Fc", b'"\\u0000"')).status_code == 200
    assert (await save(speaker, "a", b"2")).text == '{"x": 1.10}'
    assert (await api.get(f"/v1/tasks/{task}"))["stages"] == ["a", "b/c"]
    second = await again(api, agent, ref)
    assert await second.get(STAGES) == {"items": {"a": {"x": 1.1}, "b/c": "\0"}}
    (first, other) = (await api.get(f"/v1/tasks/{task}/stages"))["items"]
    assert (first["name"], first["attempt"], first["result"]) == ("a", 1, {"x": 1.1})
    assert other["name"] == "b/c"


async def test_an_attempt_that_has_ended_records_nothing(api, agent, running):
    task, ref, speaker = running
    await again(api, agent, ref)
    assert (await save(speaker, "late", b"1")).status_code == 401
    assert (await speaker.call("POST", "/v1/attempt/tasks", json=CHILD)).status_code == 401
    assert (await api.get(f"/v1/tasks/{task}"))["stages"] == []
    assert (await api.get(f"/v1/tasks?parent={task}"))["items"] == []


async def test_the_statements_refuse_a_key_whose_attempt_ended_after_it_was_checked(
    api, agent, running
):
    speaker = running[2]
    text = speaker.client.headers["authorization"].removeprefix("Bearer ")
    key = attempt_key.parse(text)
    assert key is not None
    limits = {"max_stages": 9, "max_bytes": 99, "max_result": 9}
    async with api.components.database.connection() as conn:
        for change in ({"attempt": 2}, {"token": key.token + 1}, {"digest": b"x"}):
            other = msgspec.structs.replace(key, **change)
            assert await stages.save(conn, other, "a", "1", **limits) is None
            assert not await stages.add_child(conn, other, 7)
        assert await conn.fetchval("select count(*) from stages") == 0
        assert await conn.fetchval("select count(*) from children") == 0
        saved = await stages.save(conn, key, "a", "1", **limits)
        assert saved is not None and saved.result == "1"
        assert await stages.add_child(conn, key, 7)


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("x" * 201, b"1", 422),
        ("%20", b"1", 422),
        ("a", b"", 400),
        ("a", b"{", 400),
        ("a", b"\xff", 400),
        ("a", b'"%s"' % (b"x" * 2**20), 413),
    ],
)
async def test_what_is_no_stage_is_refused(running, name, body, status):
    assert (await save(running[2], name, body)).status_code == status


async def test_a_task_has_a_bounded_number_of_stages(monkeypatch, running):
    monkeypatch.setattr("duly.server.lifecycle.attempt_calls.MAX_STAGES", 2)
    speaker = running[2]
    for name in ("a", "b"):
        assert (await save(speaker, name, b"1")).status_code == 200
    assert (await save(speaker, "c", b"1")).status_code == 422
    assert (await save(speaker, "a", b"2")).text == "1"


async def test_a_child_belongs_to_the_tenant_and_is_linked_to_its_parent(api, agent, running):
    task, ref, speaker = running
    made = await speaker.call("POST", "/v1/attempt/tasks", json=CHILD)
    assert made.status_code == 201, made.text
    child = made.json()
    assert (child["parent"], child["tenant"]) == (task, "default")
    second = await again(api, agent, ref)
    repeated = await second.call("POST", "/v1/attempt/tasks", json=CHILD)
    assert (repeated.status_code, repeated.json()["id"]) == (200, child["id"])
    assert [item["id"] for item in (await api.get(f"/v1/tasks?parent={task}"))["items"]] == [
        child["id"]
    ]
    assert (await api.get(f"/v1/tasks?parent={child['id']}"))["items"] == []


async def test_a_child_needs_an_idempotency_key(running):
    answer = await running[2].call("POST", "/v1/attempt/tasks", json={"command": ["true"]})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["field"] == "idempotency_key"


async def test_what_others_have_recorded_is_not_told(api, stranger, running):
    task, _, speaker = running
    await save(speaker, "a", b"1")
    await speaker.call("POST", "/v1/attempt/tasks", json=CHILD)
    assert (await stranger.refused("GET", f"/v1/tasks/{task}/stages"))[0] == 404
    assert (await stranger.get(f"/v1/tasks?parent={task}"))["items"] == []
    assert (await api.refused("GET", f"/v1/tasks?parent={task}&name=x"))[0] == 422
    assert (await api.refused("GET", "/v1/tasks?parent=x"))[0] == 422
