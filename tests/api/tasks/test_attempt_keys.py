"""An attempt's key may report its progress and nothing else."""

import logging

import pytest

from duly import wire
from duly.model import attempt_key
from duly.model.task import Outcome
from duly.model.tenant import Scope

PROGRESS = "/v1/attempt/progress"
HALF = {"fraction": 0.5, "text": "half of it"}


@pytest.fixture
async def running(api, agent):
    """A task that runs, and the API for who speaks for its attempt."""
    task = (await api.submit())["id"]
    ref = await agent.start()
    return task, ref, api.with_key(await agent.attempt_key(ref))


async def shown(api, task):
    return (await api.get(f"/v1/tasks/{task}"))["progress"]


async def say(speaker, **body):
    return (await speaker.call("PUT", PROGRESS, json=body or HALF)).status_code


async def test_what_an_attempt_says_is_shown_while_it_runs(api, agent, running):
    task, ref, speaker = running
    assert await shown(api, task) is None
    assert await say(speaker) == 204
    first = await shown(api, task)
    assert (first["fraction"], first["text"]) == (0.5, "half of it")
    assert await say(speaker, fraction=1) == 204
    second = await shown(api, task)
    assert (second["fraction"], second["text"]) == (1.0, None)
    assert second["at"] > first["at"]
    assert (await api.get("/v1/tasks"))["items"][0]["progress"] == second
    await agent.finish(ref)
    assert await shown(api, task) is None


UNFIT = [
    ('{"fraction": 1.01}', 422, "fraction: it must be a number from 0 to 1."),
    ('{"fraction": -0.1}', 422, "fraction: it must be a number from 0 to 1."),
    ('{"fraction": 1e400}', 400, "Number out of range"),
    ('{"fraction": NaN}', 400, "not valid JSON"),
    ('{"fraction": "0.5"}', 422, "fraction: it must be a number, not text."),
    ('{"fraction": null}', 422, "fraction: it must be a number, not null."),
    ("{}", 422, "fraction: it is missing."),
    ("[]", 400, "must be a JSON object"),
    ('{"fraction": 0.5, "task": "1"}', 422, "task: there is no such field."),
    (
        '{"fraction": 0.5, "text": "%s"}' % ("x" * 501),
        422,
        "text: it has 501 characters; at most 500 are allowed.",
    ),
    ('{"fraction": 0.5, "text": "a\\u0000b"}', 422, "text: it contains a NUL character"),
    ('{"fraction": 0.5, "text": "\\ud800"}', 400, "surrogate"),
    ('{"fraction": 0.5}' + " " * 9000, 413, "more than 8 KiB"),
]


async def test_what_cannot_be_shown_is_refused(api, running):
    task, _, speaker = running
    for body, status, words in UNFIT:
        told, error = await speaker.refused("PUT", PROGRESS, content=body)
        assert (told, words in error["message"]) == (status, True), (body[:60], error)
    assert await shown(api, task) is None


LOST = "update incarnations set ended_at = now(), end_reason = 'expired'"


async def test_a_key_is_good_for_nothing_once_its_attempt_is_over(api, agent, join):
    async def begin(node):
        ref = await node.start()
        speaker = api.with_key(await node.attempt_key(ref))
        assert await say(speaker) == 204
        return ref, speaker

    async def refused(speaker):
        routes = (("PUT", PROGRESS), ("GET", "/v1/tasks"), ("POST", "/v1/nodes"))
        told = [await speaker.refused(*route, json=HALF) for route in routes]
        return {(status, error["code"]) for status, error in told} == {(401, "unauthenticated")}

    for outcome, code in ((Outcome.SUCCEEDED, 0), (Outcome.FAILED, 1), (Outcome.CANCELLED, None)):
        await api.submit(max_attempts=1)
        ref, speaker = await begin(agent)
        assert await agent.finish(ref, outcome, code)
        assert await refused(speaker), outcome
    await api.submit()
    ref, speaker = await begin(agent)
    assert await agent.finish(ref, Outcome.EXPIRED, None)
    assert await refused(speaker), "it is back in its queue"
    ref, speaker = await begin(agent)
    await agent.send("leave", wire.LeaveRequest(incarnation=agent.joined.incarnation))
    assert await refused(speaker), "its agent has left"
    _, speaker = await begin(await join("node-b"))
    async with api.components.database.connection() as conn:
        await conn.execute(LOST)
    assert await refused(speaker), "its node is lost"


async def test_an_attempt_knows_nothing_of_the_one_before(api, agent, running):
    task, ref, speaker = running
    assert await say(speaker) == 204
    await agent.finish(ref, Outcome.EXPIRED, None)
    again = await agent.start()
    assert (again.task, again.attempt) == (ref.task, 2)
    assert await shown(api, task) is None
    assert await say(speaker) == 401
    # Nor does the secret of the old one open anything under the number of the new one.
    secret = speaker.client.headers["authorization"].rpartition("_")[2]
    forged = f"{attempt_key.PREFIX}{again.task}_{again.attempt}_{again.token}_{secret}"
    assert await say(api.with_key(forged)) == 401
    newest = api.with_key(await agent.attempt_key(again))
    assert await say(newest) == 204
    assert await say(speaker) == 401
    # After a failover, an attempt can come again under the same number: its token tells.
    async with api.components.database.connection() as conn:
        await conn.execute("update live set token = nextval('tokens')")
    assert await say(newest) == 401
    assert (await newest.refused("GET", "/v1/tasks"))[0] == 401, "nor is it let in first"
    assert await shown(api, task) is None


async def test_a_key_speaks_for_its_own_attempt_only(api, agent, key_for, running):
    _, ref, speaker = running
    stranger = api.with_key(await key_for("acme", "kim", Scope.SUBMIT, Scope.READ))
    tasks, refs = [], []
    for other in (api, stranger):
        tasks.append((await other.submit())["id"])
        refs.append(next(s.ref for s in (await agent.poll([ref, *refs])).start))
    keys = [await agent.attempt_key(other) for other in refs]
    secret = keys[0].rpartition("_")[2]
    for other in (ref, refs[1]):
        forged = f"{attempt_key.PREFIX}{other.task}_{other.attempt}_{other.token}_{secret}"
        assert await say(api.with_key(forged)) == 401
    assert await say(speaker) == 204
    assert [await shown(*one) for one in zip((api, stranger), tasks, strict=True)] == [None, None]
    for number in (refs[0].task, refs[1].task, ref.task):
        assert (await speaker.refused("GET", f"/v1/tasks/{number}"))[0] == 403


async def test_a_key_marks_no_task_not_even_its_own(api, agent, running):
    own, ref, speaker = running
    other = (await api.submit(resources={"cpu": 64}))["id"]
    mark = {"status": "done", "reason": "I say so."}
    for task in (own, other):
        for path in (f"/v1/tasks/{task}/mark", f"/v1/jobs/{task}/mark"):
            status, error = await speaker.refused("POST", path, json=mark)
            assert (status, error["code"]) == (403, "forbidden")
    assert [(await api.get(f"/v1/tasks/{task}"))["status"] for task in (own, other)] == [
        "running", "waiting",
    ]  # fmt: skip
    assert await say(speaker) == 204, "it still speaks for its attempt"
    assert await agent.finish(ref)
    assert (await speaker.refused("POST", f"/v1/tasks/{other}/mark", json=mark))[0] == 401


async def test_only_the_node_that_runs_an_attempt_gives_it_a_key(api, agent, join, running):
    _, ref, speaker = running
    other = await join("node-b")
    wrong_fences = [
        wire.AttemptRef(ref.task, ref.attempt + 1, ref.token),
        wire.AttemptRef(ref.task, ref.attempt, ref.token + 1),
        wire.AttemptRef(ref.task + 1, ref.attempt, ref.token),
    ]
    for who, named in [(other, ref), *((agent, wrong) for wrong in wrong_fences)]:
        answer = await who.send(
            "attempt-key", wire.AttemptKeyRegistration(ref=named, digest=bytes(32))
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "fenced")
    short = await agent.send("attempt-key", wire.AttemptKeyRegistration(ref=ref, digest=b"short"))
    assert short.status_code == 400
    assert await say(speaker) == 204, "it is the key that the node gave it"
    await agent.finish(ref)
    late = await agent.send("attempt-key", wire.AttemptKeyRegistration(ref=ref, digest=bytes(32)))
    assert late.status_code == 409


async def test_a_key_that_nobody_registered_is_no_key(api, agent):
    await api.submit()
    ref = await agent.start()
    never = attempt_key.mint(ref.task, ref.attempt, ref.token)
    odd = [never[:-1], never + "0", never.upper(), f"{attempt_key.PREFIX}{2**63}_1_1_{'0' * 64}"]
    for key in (never, *odd, attempt_key.PREFIX, f"{attempt_key.PREFIX}1_1_1_{'é' * 64}"):
        answer = await api.call(
            "PUT", PROGRESS, json=HALF, headers={"authorization": b"Bearer " + key.encode()}
        )
        assert answer.status_code == 401, key


async def test_the_secret_is_in_no_log_and_only_its_digest_is_stored(
    api, agent, running, components, caplog
):
    caplog.set_level(logging.DEBUG)
    _, ref, speaker = running
    secret = speaker.client.headers["authorization"].rpartition("_")[2]
    await say(speaker)
    await say(speaker, fraction=7)
    await agent.finish(ref)
    await say(speaker)
    assert secret not in caplog.text
    async with components.database.connection() as conn:
        assert secret not in str(await conn.fetch("select * from live"))


async def test_a_node_that_names_an_impossible_attempt_is_told_that_it_has_none(agent, running):
    for odd in ((2**63, 1, 1), (1, 2**31, 1), (1, 1, 2**63), (-(2**63), 1, 1)):
        ref = wire.AttemptRef(*odd)
        key = wire.AttemptKeyRegistration(ref=ref, digest=b"x" * 32)
        for answer in (await agent.log(ref, 0, b"x"), await agent.send("attempt-key", key)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "fenced"), odd
