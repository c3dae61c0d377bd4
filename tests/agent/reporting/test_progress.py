"""How an agent tells the servers what attempts say, whatever they answer."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from duly import wire
from duly.agent import gateway
from duly.agent.gateway import Gateway
from duly.agent.reporting import coalescer
from duly.agent.reporting.attempt_keys import AttemptKeys
from duly.agent.reporting.progress import PROGRESS_PATH, ProgressSender
from duly.errors import Unauthenticated
from duly.model import attempt_key
from duly.model.progress import Progress
from duly.wire import AttemptRef

REF = AttemptRef(7, 1, 40)
REGISTER = "/v1/gateway/attempt-key"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(coalescer, "MIN_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(gateway, "MIN_BACKOFF_SECONDS", 0.0)


@asynccontextmanager
async def sending(server):
    async with Gateway([server.url]) as line, asyncio.TaskGroup() as group:
        line.key = "node"
        sender = ProgressSender(line, AttemptKeys(line))
        loop = group.create_task(sender.run())
        yield sender
        loop.cancel()


async def asked(server, count):
    """Wait until a server was asked so often, and return the paths."""
    async with asyncio.timeout(20):
        while len(server.seen) < count:
            await asyncio.sleep(0.001)
    return [path for path, _, _ in server.seen]


def prepare(server, *statuses):
    for status in statuses:
        server.prepare(status)


async def test_a_key_is_registered_once_and_speaks_from_then_on(server):
    async with sending(server) as sender:
        prepare(server, 204, 204, 204)
        sender.say(REF, Progress(0.25, "x"))
        await asked(server, 2)
        sender.say(REF, Progress(0.5))
        assert await asked(server, 3) == [REGISTER, PROGRESS_PATH, PROGRESS_PATH]
    (_, node, registered), (_, first, said), (_, second, _) = server.seen
    told = wire.decode(registered, wire.AttemptKeyRegistration)
    key = first.removeprefix("Bearer ")
    assert (node, first) == ("Bearer node", second)
    assert attempt_key.parse(key) == attempt_key.AttemptKey(7, 1, 40, told.digest)
    assert (told.ref, msgspec.json.decode(said)) == (REF, {"fraction": 0.25, "text": "x"})


async def test_what_was_not_taken_is_said_again_or_what_is_newer(server):
    async with sending(server) as sender:
        prepare(server, 503, 204, 503, 204)
        sender.say(REF, Progress(0.25))
        assert await asked(server, 4) == [REGISTER, REGISTER, PROGRESS_PATH, PROGRESS_PATH]
    assert [body for path, _, body in server.seen if path == PROGRESS_PATH] == [
        msgspec.json.encode(Progress(0.25))
    ] * 2
    digests = {
        wire.decode(body, wire.AttemptKeyRegistration).digest for _, _, body in server.seen[:2]
    }
    assert len(digests) == 2, "whether the first arrived is not known, so another takes its place"


@pytest.mark.parametrize("refused", [[409], [204, 401]])
async def test_an_attempt_that_is_over_for_the_servers_says_no_more(server, refused):
    async with sending(server) as sender:
        prepare(server, *refused)
        sender.say(REF, Progress(0.25))
        await asked(server, len(refused))
        prepare(server, 204, 204)
        other = AttemptRef(8, 1, 41)
        # Each turn says the first one's before the second one's, if it says it at all.
        while len(server.seen) < len(refused) + 2:
            sender.say(REF, Progress(0.5))
            sender.say(other, Progress(1))
            await asyncio.sleep(0.001)
    later = [body for _, _, body in server.seen[len(refused) :]]
    assert wire.decode(later[0], wire.AttemptKeyRegistration).ref == other
    assert later[1] == msgspec.json.encode(Progress(1))


async def test_a_node_that_is_refused_is_told_so(server):
    prepare(server, 401)
    with pytest.raises(ExceptionGroup) as caught:
        async with sending(server) as sender:
            sender.say(REF, Progress(0.25))
            await asyncio.Event().wait()
    assert caught.group_contains(Unauthenticated)


async def test_nothing_is_said_of_an_attempt_that_has_ended(server):
    async with sending(server) as sender:
        sender.say(REF, Progress(0.25))
        sender.forget(REF)
        prepare(server, 204, 204)
        sender.say(AttemptRef(8, 1, 41), Progress(1))
        await asked(server, 2)
    assert wire.decode(server.seen[0][2], wire.AttemptKeyRegistration).ref == AttemptRef(8, 1, 41)
