"""How an agent polls: again at once, unless the servers repeat themselves."""

import asyncio

import pytest

from duly import wire
from duly.agent import events, session
from duly.agent.gateway import Gateway
from duly.agent.session import Session
from duly.agent.supervision.outcome import Exit
from duly.clock import monotonic
from duly.wire import AttemptRef, PollRequest, PollResponse, Stop

REF = AttemptRef(7, 1, 40)
NEVER = 1000.0


@pytest.fixture
async def polling(best_node, server, monkeypatch):
    """Give a session that polls, and would pause for longer than a test lasts."""
    monkeypatch.setattr(session, "IDLE_POLL_PAUSE_SECONDS", NEVER)
    async with Gateway([server.url]) as gateway, asyncio.TaskGroup() as group:
        gateway.key = "node"
        polling = Session(gateway, best_node.executor(gateway), freezer=False)
        polling.handle(events.Renewed(monotonic(), NEVER, ()))
        polling._state.attempts[REF] = session.state.HeldAttempt()
        loop = group.create_task(polling._poll(1, asyncio.Event()))
        yield polling
        loop.cancel()


async def polls(server, number):
    """Return what was held in each poll, once there were so many."""
    async with asyncio.timeout(20):
        while len(server.seen) < number:
            await asyncio.sleep(0.001)
    return [wire.decode(body, PollRequest).held for _, _, body in server.seen]


async def test_an_order_to_end_what_has_just_ended_does_not_put_off_the_next_poll(polling, server):
    assert await polls(server, 1) == [[REF]]
    polling.handle(events.Exited(REF, Exit(code=0)))
    polling.handle(events.ReportAnswered(REF))
    orders = PollResponse(start=[], stop=[Stop(ref=REF, why="lost")])
    server.prepare(200, wire.encode(orders))
    assert await polls(server, 2) == [[REF], []]
