"""How an agent tells that attempts have not begun yet."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from duly import wire
from duly.agent import events, gateway
from duly.agent.gateway import Gateway
from duly.agent.reporting import preparations
from duly.agent.reporting.preparations import PreparingSender
from duly.agent.session import Session
from duly.clock import monotonic
from duly.errors import Unauthenticated
from duly.model.resources import Resources
from duly.model.task import Payload
from duly.wire import Assignment, AttemptRef, PollResponse, PreparingReport, Stop

A, B = AttemptRef(7, 1, 40), AttemptRef(8, 1, 41)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(gateway, "MIN_BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(preparations, "FIRST_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(preparations, "NOTICE_INTERVAL_SECONDS", 0.0)


@asynccontextmanager
async def telling(server):
    async with Gateway([server.url]) as line, asyncio.TaskGroup() as group:
        line.key = "node"
        sender = PreparingSender(line)
        loop = group.create_task(sender.run())
        yield sender
        loop.cancel()


async def told(server, number):
    """Return what was told, once it was so many times."""
    async with asyncio.timeout(20):
        while len(server.seen) < number:
            await asyncio.sleep(0.001)
    assert {path for path, _, _ in server.seen} == {"/v1/gateway/preparing"}
    return [wire.decode(body, PreparingReport).refs for _, _, body in server.seen]


@pytest.mark.parametrize("status", [204, 404, 503])
async def test_attempts_are_told_of_until_they_begin(server, status):
    async with telling(server) as sender:
        sender.begin(A)
        assert await told(server, 1) == [[A]]
        sender.begin(B)
        server.prepare(status)
        assert await told(server, 2) == [[A], [A, B]]
        sender.end(A)
        server.prepare(204)
        assert await told(server, 3) == [[A], [A, B], [B]]
        sender.end(B)
        server.prepare(204)
        sender.begin(A)
        sender.end(A)  # Nothing takes its place before this is noticed.
        await asyncio.sleep(0)
        sender.begin(A)
        assert (await told(server, 4))[3:] == [[A]]
        sender.end(A)
        server.prepare(204)


async def test_a_node_that_is_refused_is_told_so(server):
    server.prepare(401)
    with pytest.raises(ExceptionGroup) as caught:
        async with telling(server) as sender:
            sender.begin(A)
            await asyncio.Event().wait()
    assert caught.group_contains(Unauthenticated)


async def test_an_attempt_with_a_bundle_is_told_of_until_it_is_withdrawn(best_node):
    async with Gateway(["http://127.0.0.1:1"]) as gateway:
        session = Session(gateway, best_node.executor(gateway), freezer=False)
        session.handle(events.Renewed(monotonic(), 1000.0, ()))
        session._apply_orders(PollResponse(start=[assignment(A)], stop=[]))
        assert list(session._preparations._due) == [A]
        session._apply_orders(PollResponse(start=[], stop=[Stop(ref=A, why="capped")]))
        assert not session._preparations._due


async def test_an_attempt_with_a_bundle_is_told_of_until_it_begins(best_node):
    async with Gateway(["http://127.0.0.1:1"]) as gateway:
        session = Session(gateway, best_node.executor(gateway), freezer=False)
        session.handle(events.Renewed(monotonic(), 1000.0, ()))
        session._apply_orders(PollResponse(start=[assignment(A)], stop=[]))
        session.handle(events.Fetched(A, None))
        assert not session._preparations._due


def assignment(ref):
    return Assignment(
        ref=ref,
        payload=Payload(command=["true"], artifact="0" * 64),
        resources=Resources(),
        execution_cap=1.0,
        grace=1.0,
        idempotency_key="k",
        log_limit=1,
        result_limit=1,
        tenant=3,
    )
