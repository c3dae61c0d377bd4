import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly import wire
from duly.api.tasks import logs
from duly.config import ExecutionSettings, RetrySettings, Settings
from duly.model.resources import Resources
from duly.model.task import Outcome
from duly.server.artifacts.log_store import LOST_NOTICE
from tests.api.conftest import Agent


@pytest.fixture
def settings():
    return Settings(
        retries=RetrySettings(base_delay=timedelta(0)),
        execution=ExecutionSettings(log_limit=100_000),
    )


async def log(api, task, query=""):
    answer = await api.call("GET", f"/v1/tasks/{task}/logs{query}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    return answer.content


async def test_a_short_log_is_the_tail_of_the_report(api, agent):
    task = (await api.submit())["id"]
    assert await log(api, task) == b""
    assert await agent.finish(await agent.start(), log=b"caf\xc3\xa9 \xff\x00\n")
    assert await log(api, task) == b"caf\xc3\xa9 \xff\x00\n"


async def test_a_long_log_is_joined_from_its_chunks_and_its_tail(api, agent):
    written = b"".join(b"%d\n" % n for n in range(5000))
    task = (await api.submit())["id"]
    ref = await agent.start()
    for offset in range(0, len(written) - 3000, 5000):
        assert (await agent.log(ref, offset, written[offset : offset + 5100])).status_code == 204
    assert written.startswith(await log(api, task))
    assert await agent.finish(ref, log=written)
    assert await log(api, task) == written


async def test_a_log_that_the_store_cannot_read_is_unavailable_and_logged_in_one_line(
    api, agent, tmp_path, caplog
):
    written = b"x" * 9000
    task = (await api.submit())["id"]
    ref = await agent.start()
    await agent.log(ref, 0, written)
    assert await agent.finish(ref, log=written)
    (chunk,) = [file for file in (tmp_path / "store" / "logs").rglob("*") if file.is_file()]
    chunk.parent.rename(tmp_path / "moved")
    # Even root cannot read this: a link to itself.
    chunk.parent.symlink_to(chunk.parent)
    for query in ("", "?follow=true"):
        caplog.clear()
        status, error = await api.refused("GET", f"/v1/tasks/{task}/logs{query}")
        assert (status, error["code"]) == (503, "unavailable")
        assert error["message"].startswith("The log cannot be read from the object store: ")
        assert "\n" not in error["message"]
        assert [line for line in caplog.messages if "log" in line] == [
            "a log cannot be read from the object store"
        ]


async def test_each_attempt_has_a_log_of_its_own(api, agent):
    task = (await api.submit())["id"]
    assert await agent.finish(await agent.start(), Outcome.FAILED, exit_code=1, log=b"first")
    assert await agent.finish(await agent.start(), log=b"second")
    assert await log(api, task) == b"second"
    assert await log(api, task, "?attempt=1") == b"first"
    for attempt in (3, 0, "x"):
        status, _ = await api.refused("GET", f"/v1/tasks/{task}/logs?attempt={attempt}")
        assert status == (404 if attempt == 3 else 422)


async def test_following_goes_through_every_attempt_to_the_end(api, agent):
    task = (await api.submit())["id"]
    async with asyncio.TaskGroup() as group:
        following = group.create_task(log(api, task, "?follow=true"))
        first = await agent.start()
        assert (await agent.log(first, 0, b"one ")).status_code == 204
        assert await agent.finish(first, Outcome.FAILED, exit_code=1, log=b"one two ")
        assert await agent.finish(await agent.start(), log=b"three")
        async with asyncio.timeout(10):
            whole = await following
    # The first attempt may be over before anybody looks; what is seen of it is seen whole.
    assert whole in (b"one two three", b"three")


async def test_following_one_attempt_ends_with_it(api, agent):
    task = (await api.submit())["id"]
    async with asyncio.TaskGroup() as group:
        following = group.create_task(log(api, task, "?follow=true&attempt=1"))
        ref = await agent.start()
        assert (await agent.log(ref, 0, b"one ")).status_code == 204
        assert await agent.finish(ref, Outcome.FAILED, exit_code=1, log=b"one two")
        async with asyncio.timeout(10):
            assert await following == b"one two"


async def test_an_attempt_that_was_given_away_can_not_write(api, agent):
    await api.submit()
    ref = await agent.start()
    stale = wire.AttemptRef(ref.task, ref.attempt, ref.token + 1)
    answer = await agent.log(stale, 0, b"forged")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "fenced")
    assert await agent.finish(ref, log=b"ok")
    assert (await agent.log(ref, 0, b"late")).status_code == 409
    assert await log(api, ref.task) == b"ok"


async def test_another_node_can_not_write_into_a_log(api, agent, join):
    await api.submit()
    ref = await agent.start()
    other = await join("node-b")
    assert (await other.log(ref, 0, b"forged")).status_code == 409


async def test_a_log_beyond_its_limit_is_refused(api, agent):
    await api.submit()
    ref = await agent.start()
    assert (await agent.log(ref, 200_000, b"x")).status_code == 413


async def test_what_is_written_is_seen_while_the_task_still_runs(real, join_over, monkeypatch):
    monkeypatch.setattr(logs, "POLL_INTERVAL_SECONDS", 60.0)
    agent = await join_over(real)
    task = (await real.submit())["id"]
    ref = await agent.start()
    async with real.client.stream("GET", f"/v1/tasks/{task}/logs?follow=true") as answer:
        lines = answer.aiter_bytes()
        async with asyncio.timeout(10):
            for offset, text in ((0, b"one\n"), (4, b"two\n")):
                assert (await agent.log(ref, offset, text)).status_code == 204
                assert await anext(lines) == text
            assert (await real.get(f"/v1/tasks/{task}"))["status"] == "running"
            assert await agent.finish(ref, log=b"one\ntwo\nthree\n")
            assert [text async for text in lines] == [b"three\n"]


async def lose(agent):
    """Let the agent of a node begin anew, so that what it ran is lost."""
    capacity = Resources(cpu_milli=4000, memory_mb=8192, disk_mb=8192)
    asked = wire.JoinRequest(name="node-a", capacity=capacity)
    answer = await agent.api.call("POST", "/v1/nodes", content=msgspec.json.encode(asked))
    assert answer.status_code == 201, answer.text
    return Agent(agent.api, wire.JoinResponse(**answer.json()))


async def test_what_a_lost_attempt_wrote_is_kept_as_far_as_it_was_received(api, agent):
    task = (await api.submit())["id"]
    first = await agent.start()
    assert (await agent.log(first, 0, b"one ")).status_code == 204
    assert (await agent.log(first, 4, b"two\n")).status_code == 204
    assert await log(api, task, "?attempt=1") == b"one two\n"

    agent = await lose(agent)
    assert await agent.finish(await agent.start(), log=b"again")
    assert await log(api, task, "?attempt=1") == b"one two\n" + LOST_NOTICE
    assert await log(api, task) == b"again"
    assert (await agent.log(first, 8, b"late")).status_code == 409
    assert await log(api, task, "?attempt=1") == b"one two\n" + LOST_NOTICE


async def test_following_tells_once_that_the_rest_was_lost_with_the_node(api, agent):
    task = (await api.submit())["id"]
    async with asyncio.TaskGroup() as group:
        following = group.create_task(log(api, task, "?follow=true"))
        first = await agent.start()
        assert (await agent.log(first, 0, b"one\n")).status_code == 204
        agent = await lose(agent)
        assert await agent.finish(await agent.start(), log=b"two")
        async with asyncio.timeout(10):
            whole = await following
    # The first attempt may be over before anybody looks; what is seen of it is seen whole.
    assert whole in (b"one\n" + LOST_NOTICE + b"two", b"two")
