"""How an agent speaks to servers that answer, refuse, or are not there."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from duly import wire
from duly.agent.gateway import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, Backoff, Gateway
from duly.agent.reporting import reports
from duly.agent.reporting.reports import ReportSender
from duly.errors import Conflict, Fenced, Invalid, Malformed, Unauthenticated, Unavailable
from duly.model.resources import Resources
from duly.model.task import Outcome
from duly.wire import (
    AttemptRef,
    AttemptReport,
    Heartbeat,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    PollRequest,
    PollResponse,
    ReportRequest,
    ReportResponse,
)

NOWHERE = "http://127.0.0.1:1"


async def test_a_message_arrives_with_the_key_and_comes_back_typed(server):
    async with Gateway([server.url + "/"]) as gateway:
        gateway.key = "k"
        server.prepare(200, wire.encode(HeartbeatResponse(ttl=15.0, stop=[])))
        beat = Heartbeat(incarnation=3, held=[AttemptRef(1, 2, 3)])
        assert await gateway.call(
            "heartbeat", beat, HeartbeatResponse, timeout=5
        ) == HeartbeatResponse(ttl=15.0, stop=[])
        [(path, authorization, body)] = server.seen
        assert (path, authorization) == ("/v1/gateway/heartbeat", "Bearer k")
        assert wire.decode(body, Heartbeat) == beat


async def test_a_join_is_json_both_ways(server):
    async with Gateway([server.url]) as gateway:
        answer = b'{"node": 1, "incarnation": 2, "lease_ttl": 15, "heartbeat_interval": 3}'
        server.prepare(201, answer, "application/json")
        message = JoinRequest(name="n", capacity=wire.capacity(Resources(cpu_milli=1000)))
        assert await gateway.join(message, timeout=5) == JoinResponse(
            node=1, incarnation=2, lease_ttl=15.0, heartbeat_interval=3.0
        )


async def test_the_next_server_is_asked_when_one_cannot_be_reached(server):
    async with Gateway([NOWHERE, server.url]) as gateway:
        with pytest.raises(Unavailable):
            await gateway.send("leave", {}, timeout=5)
        server.prepare(204)
        await gateway.send("leave", {}, timeout=5)
        server.prepare(204)
        await gateway.send("leave", {}, timeout=5)


async def test_a_server_that_does_not_answer_in_time_is_left(server):
    async with Gateway([server.url]) as gateway:
        with pytest.raises(Unavailable):
            await gateway.send("leave", {}, timeout=0.05)
    server.prepare(204)  # Let the request end.


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "malformed", Malformed),
        (401, "unauthenticated", Unauthenticated),
        (409, "fenced", Fenced),
        (409, "conflict", Conflict),
        (422, "invalid", Invalid),
        (429, "limit_exceeded", Unavailable),
        (500, "error", Unavailable),
        (503, "unavailable", Unavailable),
    ],
)
async def test_a_refusal_is_an_error_of_its_kind(server, status, code, error):
    async with Gateway([server.url]) as gateway:
        body = b'{"error": {"code": "%s", "message": "why", "details": {}}}' % code.encode()
        server.prepare(status, body, "application/json")
        with pytest.raises(error, match="why") as caught:
            await gateway.send("poll", {}, timeout=5)
        assert type(caught.value) is error


async def test_an_answer_that_makes_no_sense_is_asked_for_again(server):
    async with Gateway([server.url]) as gateway:
        server.prepare(200, b"<html>")
        with pytest.raises(Unavailable):
            await gateway.call("heartbeat", {}, HeartbeatResponse, timeout=5)
        server.prepare(502, b"<html>", "text/html")
        with pytest.raises(Unavailable):
            await gateway.call("heartbeat", {}, HeartbeatResponse, timeout=5)


def test_pauses_grow_to_a_bound_and_are_jittered():
    backoff = Backoff()
    pauses = [backoff.next() for _ in range(20)]
    assert MIN_BACKOFF_SECONDS / 2 <= pauses[0] <= MIN_BACKOFF_SECONDS
    assert all(MAX_BACKOFF_SECONDS / 2 <= pause <= MAX_BACKOFF_SECONDS for pause in pauses[8:])
    assert len(set(pauses)) > 10


def test_pauses_are_no_longer_than_asked_for():
    backoff = Backoff(max_pause=0.3)
    assert max(backoff.next() for _ in range(20)) <= 0.3


def report(task: int, *, result: bytes | None = None) -> AttemptReport:
    ref = AttemptRef(task, 1, task)
    return AttemptReport(ref=ref, outcome=Outcome.SUCCEEDED, exit_code=0, result=result)


async def sending(server, given, answers):
    """Send `given` reports to a server that gives `answers`, until each has been answered."""
    answered: dict[int, bool] = {}
    done = asyncio.Event()

    def note(ref: AttemptRef, accepted: bool) -> None:
        answered[ref.task] = accepted
        if len(answered) == len(given):
            done.set()

    async with Gateway([server.url]) as gateway, asyncio.TaskGroup() as group:
        sender = ReportSender(gateway, note, lambda: 0)
        for each in given:
            sender.add(each, None)
        for status, body in answers:
            server.prepare(status, body)
        loop = group.create_task(sender.run(5))
        async with asyncio.timeout(20):
            await done.wait()
        loop.cancel()
    return answered


def receipts(*accepted: bool) -> tuple[int, bytes]:
    return 200, wire.encode(ReportResponse(accepted=list(accepted)))


async def test_reports_leave_together_and_each_is_answered(server):
    answered = await sending(server, [report(1), report(2)], [receipts(True, False)])
    assert answered == {1: True, 2: False}
    assert len(server.seen) == 1


async def test_reports_are_repeated_until_answered(server):
    answers = [(503, b""), (200, b"?"), receipts(True), receipts(True, True)]
    assert await sending(server, [report(1), report(2)], answers) == {1: True, 2: True}
    assert len(server.seen) == 4


async def test_one_report_that_is_refused_does_not_hold_up_the_others(server):
    answers = [(400, b""), (400, b""), receipts(True), receipts(True, True)]
    given = [report(1, result=b"?"), report(2), report(3)]
    assert await sending(server, given, answers) == {1: True, 2: True, 3: True}
    stripped = wire.decode(server.seen[2][2], ReportRequest).reports[0]
    assert (stripped.result, stripped.outcome) == (None, Outcome.SUCCEEDED)


@asynccontextmanager
async def sending_first(server, running: int = 4):
    """Give a sender that has just sent the first of the attempts that it holds."""
    async with Gateway([server.url]) as gateway, asyncio.TaskGroup() as group:
        answered = asyncio.Event()
        sender = ReportSender(gateway, lambda ref, accepted: answered.set(), lambda: running)
        server.prepare(*receipts(True))
        sender.add(report(1), None)
        loop = group.create_task(sender.run(5))
        async with asyncio.timeout(20):
            await answered.wait()
            yield sender
        loop.cancel()


async def batches(server, count: int) -> list[list[int]]:
    while len(server.seen) < count:
        await asyncio.sleep(0.001)
    return [
        [one.ref.task for one in wire.decode(body, ReportRequest).reports]
        for *_, body in server.seen
    ]


async def test_reports_are_gathered_until_half_of_what_runs_has_ended(server, monkeypatch):
    monkeypatch.setattr(reports, "BATCH_INTERVAL_SECONDS", 3600.0)
    async with sending_first(server) as sender:
        sender.add(report(2), None)
        await asyncio.sleep(0.05)  # It would have left by now.
        sender.add(report(3), None)
        assert await batches(server, 2) == [[1], [2, 3]]


async def test_a_report_waits_for_others_only_for_a_moment(server):
    async with sending_first(server) as sender:
        sender.add(report(2), None)
        assert await batches(server, 2) == [[1], [2]]


async def test_of_many_that_end_at_once_more_are_gathered(server, monkeypatch):
    monkeypatch.setattr(reports, "BATCH_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(reports, "LARGE_BATCH_INTERVAL_SECONDS", 3600.0)
    running = 4 * reports.LARGE_BATCH_REPORTS
    async with sending_first(server, running) as sender:
        for task in range(2, 2 + reports.LARGE_BATCH_REPORTS):
            sender.add(report(task), None)
        await asyncio.sleep(0.05)  # They would have left by now.
        for task in range(2 + reports.LARGE_BATCH_REPORTS, 2 + running // 2):
            sender.add(report(task), None)
        assert await batches(server, 2) == [[1], list(range(2, 2 + running // 2))]


async def test_of_many_that_end_at_once_none_waits_for_long(server):
    async with sending_first(server, 1000) as sender:
        for task in range(2, 2 + reports.LARGE_BATCH_REPORTS):
            sender.add(report(task), None)
        assert await batches(server, 2) == [[1], list(range(2, 2 + reports.LARGE_BATCH_REPORTS))]


async def test_when_one_call_finds_a_server_silent_no_other_waits_for_it(server):
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        silent = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        async with Gateway([silent, server.url]) as gateway:
            message = PollRequest(incarnation=3, held=[], wait=25.0)
            poll = asyncio.ensure_future(gateway.call("poll", message, PollResponse, timeout=60))
            beat = Heartbeat(incarnation=3, held=[])
            with pytest.raises(Unavailable):
                await gateway.call("heartbeat", beat, HeartbeatResponse, timeout=0.3)
            with pytest.raises(Unavailable, match="no answer in time"):
                await asyncio.wait_for(poll, 5)
            server.prepare(200, wire.encode(HeartbeatResponse(ttl=15.0, stop=[])))
            assert await gateway.call("heartbeat", beat, HeartbeatResponse, timeout=5)


async def test_a_silent_server_is_not_waited_for_while_another_can_be_asked(server):
    beat = Heartbeat(incarnation=3, held=[])
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        silent = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        async with Gateway([silent, server.url]) as gateway:
            with pytest.raises(Unavailable):
                async with asyncio.timeout(5):
                    await gateway.call(
                        "heartbeat", beat, HeartbeatResponse, timeout=60, failover_timeout=0.1
                    )
            server.prepare(200, wire.encode(HeartbeatResponse(ttl=15.0, stop=[])))
            assert await gateway.call(
                "heartbeat", beat, HeartbeatResponse, timeout=60, failover_timeout=30
            )


async def test_when_there_is_no_other_server_a_slow_one_is_waited_for(server):
    beat = Heartbeat(incarnation=3, held=[])
    async with Gateway([server.url]) as gateway:
        call = gateway.call(
            "heartbeat", beat, HeartbeatResponse, timeout=60, failover_timeout=0.001
        )
        asked = asyncio.ensure_future(call)
        while not server.seen:
            await asyncio.sleep(0.01)
        server.prepare(200, wire.encode(HeartbeatResponse(ttl=15.0, stop=[])))
        assert await asked
