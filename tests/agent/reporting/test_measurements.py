"""How an agent tells since when its attempts run, and what they have used so far."""

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from duly import wire
from duly.agent import gateway
from duly.agent.gateway import Gateway
from duly.agent.reporting import measurements
from duly.agent.reporting.measurements import MeasurementSender
from duly.clock import monotonic
from duly.wire import RunningReport

ANSWERS = 50
YOUNG = 3600.0
"""Seconds that no attempt of a test lives."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(gateway, "MIN_BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(measurements, "CHECK_INTERVAL_SECONDS", 0.01)


@asynccontextmanager
async def telling(server, node, min_age, status=204):
    async with Gateway([server.url]) as line, asyncio.TaskGroup() as group:
        line.key = "node"
        sender = MeasurementSender(line, node.executor(line))
        node.on_measured = sender.take
        for _ in range(ANSWERS):
            server.prepare(status)
        loop = group.create_task(sender.run(min_age))
        yield sender
        loop.cancel()


async def told(server, number):
    """Return what was told, once it was so many times."""
    async with asyncio.timeout(20):
        while len(server.seen) < number:
            await asyncio.sleep(0.001)
    assert {path for path, _, _ in server.seen} == {"/v1/gateway/running"}
    return [wire.decode(body, RunningReport).measured for _, _, body in server.seen]


async def test_an_attempt_is_told_of_while_it_runs(server, node):
    before = monotonic()
    ref = node.start("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 60")
    async with telling(server, node, 0.0):
        first, *_, last = [one for [one] in await told(server, 3)]
    assert first.ref == last.ref == ref
    assert 0 < first.ran < last.ran <= monotonic() - before
    if node.layout.unified:
        assert 0 < last.cpu_seconds <= last.ran
    if node.layout.limits_memory:
        assert last.peak_memory_mb > 0


@pytest.mark.parametrize("status", [404, 503])
async def test_it_is_told_again_whatever_the_server_answers(server, node, status):
    node.start("sleep", "60")
    async with telling(server, node, 0.0, status):
        await told(server, 2)


async def test_it_is_told_less_and_less_often(server, node):
    node.start("sleep", "60")
    async with telling(server, node, 0.0):
        ages = [one.ran for [one] in await told(server, 6)]
    assert all(later >= 2 * earlier for earlier, later in pairwise(ages[2:]))


async def test_a_young_attempt_is_told_of_only_if_it_writes(server, node, monkeypatch):
    monkeypatch.setattr(measurements, "MIN_AGE_WITH_OUTPUT_SECONDS", 0.0)
    node.start("sleep", "60")
    writer = node.start("sh", "-c", "echo hello; sleep 60")
    ref, size = await node.outputs.get()
    node.attempts.find(ref).log_size = size
    async with telling(server, node, YOUNG):
        [[one], *_] = await told(server, 1)
    assert one.ref == writer


async def test_answers_that_come_late_and_twice_are_told_once(server, node):
    node.start("sleep", "60")
    other = node.start("sleep", "60")
    (number,) = [local.id for local in node.attempts.running if local.ref == other]
    sample = (number, monotonic() - 60, None, None)
    async with telling(server, node, YOUNG) as sender:
        for count in (2, 3):
            sender.take([sample] * count)
            await told(server, 1)
            while sender._samples:
                await asyncio.sleep(0)
        [[one]] = await told(server, 1)
    assert one.ref == other


async def test_of_an_attempt_that_has_ended_nothing_is_told(server, node):
    ref = node.start("true")
    await node.end(ref)
    other = node.start("sleep", "60")
    async with telling(server, node, 0.0):
        assert {one.ref for [one] in await told(server, 2)} == {other}


async def test_throttling_is_told_at_the_next_check_and_once(server, node):
    ref = node.start("sleep", "60")
    attempt = node.attempts.find(ref)
    async with telling(server, node, YOUNG) as sender:
        attempt.add_throttled(wire.Throttled("stripe", 30.0), monotonic())
        sender.add_throttled(ref)
        await told(server, 1)
        [(_, _, body)] = server.seen
    [call] = wire.decode(body, RunningReport).throttled
    assert (call.ref, call.throttled.key) == (ref, "stripe")
    assert 29 < call.throttled.retry_after <= 30
    assert attempt.throttled_by(monotonic()) == []
    [again] = attempt.throttled_by(monotonic(), is_over=True)
    assert again.key == "stripe"


async def test_throttling_that_no_server_took_is_told_again(server, node):
    ref = node.start("sleep", "60")
    async with telling(server, node, YOUNG, 503) as sender:
        node.attempts.find(ref).add_throttled(wire.Throttled("stripe"), monotonic())
        sender.add_throttled(ref)
        await told(server, 2)
    calls = [wire.decode(body, RunningReport).throttled for _, _, body in server.seen]
    assert all([call.throttled.key for call in each] == ["stripe"] for each in calls)
