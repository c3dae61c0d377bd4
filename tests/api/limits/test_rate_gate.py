"""The rate gate refuses submissions exactly as the API would."""

import asyncio
import json

import pytest

from duly.api.limits.rate_gate import MAX_DELAY_INTERVALS, MIN_SENT_PER_INTERVAL, RateGate
from duly.launch.serve import Api as HttpApi
from duly.launch.serve import listen
from duly.model.tenant import Scope
from duly.server.admission.rate_limiter import REFUSED_BY_RATE
from duly.server.cluster.hints import Hint

TASK = b'{"command": ["true"]}'
KEYED = b'{"command": ["true"], "idempotency_key": "k"}'


@pytest.fixture
async def port(components):
    """The port of a server over the same components."""
    stop, sock = asyncio.Event(), listen("127.0.0.1", 0)
    server = HttpApi(components)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run_until(stop, sock))
        await server.is_listening.wait()
        yield sock.getsockname()[1]
        stop.set()


@pytest.fixture
async def key(api, key_for, components):
    """A key of a tenant whose plan admits one task an hour."""
    made = await key_for("slow", "kim", Scope.SUBMIT, Scope.READ)
    async with components.database.connection() as conn:
        await conn.execute(
            """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                                  tasks_per_hour, burst)
               values ('slow', '5 m', '1 h', '24 h', 1, 1, 1)"""
        )
        await conn.execute("update tenants set plan = 'slow' where name = 'slow'")
    return made


def request(key, body=TASK, *, path="/v1/tasks", more=""):
    head = f"POST {path} HTTP/1.1\r\nHost: duly\r\nAuthorization: Bearer {key}\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Caller:
    """One connection, on which requests are sent as they are."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def ask(self, *components):
        """Send a request in pieces; return the status, the headers and the body."""
        for part in components:
            self.writer.write(part)
            await self.writer.drain()
        return await self.answer()

    async def answer(self):
        """Return the next answer."""
        status, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(status.split()[1]), headers, json.loads(body)


@pytest.fixture
async def caller(port, key):
    """A connection of a tenant whose bucket was just seen to be empty."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = Caller(reader, writer)
    try:
        assert (await found.ask(request(key, KEYED)))[0] == 201
        yield found
    finally:
        writer.close()


def count(of):
    return of._value.get()


@pytest.fixture
def gate_refusals(components, monkeypatch):
    """Return the list of refusals that the gate sends."""
    refused = []
    enqueue = RateGate.enqueue
    monkeypatch.setattr(RateGate, "enqueue", lambda *args: (refused.append(args), enqueue(*args)))
    return refused


async def test_it_says_what_the_api_would_say(caller, key, gate_refusals):
    before = count(REFUSED_BY_RATE)
    in_parts = await caller.ask(request(key)[:-5], request(key)[-5:])
    ours = await caller.ask(request(key))
    assert len(gate_refusals) in (1, 2)
    assert ours[0] == in_parts[0] == 429
    assert ours[1].keys() == in_parts[1].keys()
    same = {"retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"}
    assert same <= ours[1].keys()
    assert ours[2]["error"]["code"] == "limit_exceeded"
    assert ours[2]["error"]["message"].startswith(
        "Limit exceeded: the plan allows 1 task per hour, "
    )
    assert ours[2]["error"]["details"].keys() == in_parts[2]["error"]["details"].keys()
    assert count(REFUSED_BY_RATE) == before + 2


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (KEYED, ""),
        (TASK, "Idempotency-Key: k\r\n"),
        (KEYED.replace(b"idempotency_key", rb"idempotency\u005fkey"), ""),
        (KEYED.replace(b"idempotency_key", rb"\u0069dempotency_key"), ""),
    ],
)
async def test_a_repeat_is_answered_however_its_key_is_written(
    caller, key, gate_refusals, body, more
):
    assert (await caller.ask(request(key)))[0] == 429
    status, _, task = await caller.ask(request(key, body, more=more))
    assert (status, task["command"]) == (200, ["true"])
    assert len(gate_refusals) == 1


async def test_a_new_key_is_refused_by_the_database(caller, key, gate_refusals):
    body = KEYED.replace(b'"k"', b'"new"')
    assert (await caller.ask(request(key, body)))[0] == 429
    assert gate_refusals == []


async def test_requests_that_are_sent_together_are_answered_in_their_order(caller, key):
    caller.writer.write(request(key) + request(key, KEYED) + request(key))
    assert [(await caller.answer())[0] for _ in range(3)] == [429, 200, 429]


async def test_who_wants_to_hang_up_may(caller, key, gate_refusals):
    status, headers, _ = await caller.ask(request(key, more="Connection: close\r\n"))
    assert (status, headers["connection"]) == (429, "close")
    assert await caller.reader.read() == b""
    assert len(gate_refusals) == 1


async def test_who_hangs_up_before_its_turn_is_no_trouble(caller, key, port):
    caller.writer.write(request(key))
    await caller.writer.drain()
    caller.writer.transport.abort()
    other = Caller(*await asyncio.open_connection("127.0.0.1", port))
    assert (await other.ask(request(key)))[0] == 429
    other.writer.close()


async def test_others_are_not_refused(caller, key_for, port):
    neighbour = await key_for("acme", "kim", Scope.SUBMIT)
    assert (await caller.ask(request(neighbour)))[0] == 201
    assert (await caller.ask(request("nobody")))[0] == 401


async def test_who_may_not_submit_is_told_that(caller, key_for, components, gate_refusals):
    reader = await key_for("slow", "lee", Scope.READ)
    for _ in range(2):
        assert (await caller.ask(request(reader)))[0] == 403
    assert gate_refusals == []


async def test_a_tenant_that_is_suspended_is_told_that(caller, key, components, gate_refusals):
    async with components.database.connection() as conn:
        await conn.execute("update tenants set suspended_at = now() where name = 'slow'")
    components.authenticator.on_hint(Hint(credentials=True))
    for _ in range(2):  # The first makes the key known again.
        assert (await caller.ask(request(key)))[0] == 403
    assert gate_refusals == []


async def test_a_key_that_is_revoked_is_told_that(api, caller, key, components, gate_refusals):
    assert (await caller.ask(request(key)))[0] == 429
    async with components.database.connection() as conn:
        await conn.execute("update keys set revoked_at = now() where prefix = $1", key[:12])
    components.authenticator.on_hint(Hint(credentials=True))
    while (answer := await caller.ask(request(key)))[0] == 429:
        pass
    assert answer[0] == 401


async def test_few_are_sent_at_a_time_and_all_in_their_order(components):
    gate, sent = RateGate(components), []
    for number in range(MIN_SENT_PER_INTERVAL + 1):
        gate.enqueue("/v1/tasks", lambda number=number: sent.append(number))
    assert sent == []
    gate._send_queued()
    assert sent == list(range(MIN_SENT_PER_INTERVAL))
    gate._send_queued()
    assert sent == list(range(MIN_SENT_PER_INTERVAL + 1))


async def test_the_more_there_are_the_more_are_sent(components):
    gate, sent = RateGate(components), []
    for number in range(MIN_SENT_PER_INTERVAL * MAX_DELAY_INTERVALS * 2):
        gate.enqueue("/v1/tasks", lambda number=number: sent.append(number))
    gate._send_queued()
    assert sent == list(range(MIN_SENT_PER_INTERVAL * 2))
