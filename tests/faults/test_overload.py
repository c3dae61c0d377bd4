"""Overload and a slow database: clients get Retry-After, nodes and the leader keep their leases."""

import asyncio
import json
import re
import resource
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import Request, urlopen

import aiohttp
import asyncpg
import psutil
import pytest

from duly.config import DatabaseSettings
from duly.store.connections.connection_classes import ConnectionClass, slots_per_class
from tests.faults.lab import Lab, Program, until
from tests.faults.proxy import Proxy
from tests.faults.test_kills import submit

pytestmark = pytest.mark.faults
CLIENTS = 2000
SHARE = (slots_per_class(DatabaseSettings().connections)[ConnectionClass.CLIENT] + 1) // 2
"""Connections that one tenant may have at once, of those for clients."""
GROWTH = 60 * 2**20
"""Bytes by which a server may grow between one wave of clients and the next ones."""
WITHIN = 15.0
"""Seconds; a client of ours waits for 30."""


@contextmanager
def session(dsn: str, *statements: str) -> Iterator[None]:
    """Run statements in a transaction that stays open for the length of the block."""
    opened, close = threading.Event(), threading.Event()

    async def hold() -> None:
        conn = await asyncpg.connect(dsn)
        try:
            async with conn.transaction():
                for statement in statements:
                    await conn.execute(statement)
                opened.set()
                await asyncio.to_thread(close.wait)
        finally:
            await conn.close()

    thread = threading.Thread(target=asyncio.run, args=(hold(),))
    thread.start()
    try:
        assert opened.wait(10)
        yield
    finally:
        close.set()
        thread.join()


async def _post(
    session: aiohttp.ClientSession, path: str, body: object, key: str | None
) -> tuple[int, str | None, float]:
    sent: list[float] = []
    headers = {} if key is None else {"Idempotency-Key": key}
    async with session.post(path, json=body, headers=headers, trace_request_ctx=sent) as answer:
        await answer.read()
        return answer.status, answer.headers.get("Retry-After"), time.monotonic() - sent[-1]


def _noting_when_sent() -> aiohttp.TraceConfig:
    """Return what notes when a request is sent: how long we take before that is our own affair."""

    async def note(_: object, trace: Any, __: object) -> None:
        trace.trace_request_ctx.append(time.monotonic())

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(note)
    return config


def flood(
    lab: Lab, clients: int, path: str, body: object, key: str | None = None
) -> list[tuple[int, str | None, float]]:
    """Let many clients ask at once; return the status, Retry-After and seconds of each."""

    async def ask() -> list[tuple[int, str | None, float]]:
        async with aiohttp.ClientSession(
            lab.url,
            headers={"Authorization": f"Bearer {lab.key}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=60),
            trace_configs=[_noting_when_sent()],
        ) as session:
            return await asyncio.gather(*(_post(session, path, body, key) for _ in range(clients)))

    return asyncio.run(ask())


def refused(answers: list[tuple[int, str | None, float]]) -> None:
    """Make sure that everyone was told in time to come again, and when."""
    assert Counter(status for status, _, _ in answers) == {503: len(answers)}
    assert all(after is not None and int(after) >= 1 for _, after, _ in answers)
    assert max(seconds for _, _, seconds in answers) < WITHIN


def shed(lab: Lab) -> float:
    """Return how many requests of clients were refused before they were read."""
    request = Request(f"{lab.url}/metrics", headers={"Authorization": f"Bearer {lab.key}"})
    with urlopen(request, timeout=30) as answer:
        found = re.search(
            r'duly_requests_shed_total{bulkhead="open"} (\S+)', answer.read().decode()
        )
    return float(found[1]) if found else 0.0


def memory_of(server: Program) -> int:
    found: int = psutil.Process(server.pid).memory_info().rss
    return found


@pytest.fixture
def stalling(dsn: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of PostgreSQL's socket, and the DSN that goes through it."""
    folder = Path(tempfile.mkdtemp(prefix="duly-proxy-"))
    parts = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    name = f".s.PGSQL.{query['port']}"
    proxy = Proxy(Path(query["host"]) / name, folder / name)
    through = parts._replace(query=f"host={quote(str(folder))}&port={query['port']}").geturl()
    yield proxy, through
    proxy.close()
    shutil.rmtree(folder)


def test_two_thousand_clients_of_a_stalled_database_are_told_to_come_again(
    lab: Lab, stalling: tuple[Proxy, str]
) -> None:
    proxy, through = stalling
    server = lab.start_server(dsn=through, REQUESTS__TIMEOUT="3s", REQUESTS__OPEN_LIMIT="1000")
    body = {"command": ["true"], "env": {"FILLER": "x" * 10_000}}
    assert Counter(one[0] for one in flood(lab, 200, "/v1/tasks", body)) == {201: 200}

    proxy.part()
    refused(flood(lab, CLIENTS, "/v1/tasks", body))
    before = memory_of(server)
    for _ in range(2):
        refused(flood(lab, CLIENTS, "/v1/tasks", body))
    assert memory_of(server) - before < GROWTH

    proxy.heal()
    healed_at = time.monotonic()
    task = lab.client().submit(command=["true"])["id"]
    assert time.monotonic() - healed_at < 10
    assert shed(lab) > 0
    stored = lab.client().list_tasks(limit=1000)["items"]
    # Of the thousands who were refused at most one group was on its way to the database.
    assert len(stored) <= 200 + 500 + 1 and stored[0]["id"] == task


def test_slow_batches_cost_neither_a_lease_nor_the_term_nor_single_submits(lab: Lab) -> None:
    lab.start_server(REQUESTS__TIMEOUT="2s")
    lab.start_agent()
    leader = lab.leader()
    running = submit(lab, "sleep 6")
    until(lambda: lab.ledger.starts(running), "the task to start")
    key = "insert into duly.submissions values (1, 'k', '', 0, '{}', now())"
    batch = {"tasks": [{"command": ["true"]}]}
    with session(lab.dsn, key):
        slow = threading.Thread(target=flood, args=(lab, 60, "/v1/tasks/batch", batch, "k"))
        slow.start()
        until(lambda: _waiting_for_locks(lab.dsn) >= SHARE, "slow batches")
        assert _waiting_for_locks(lab.dsn) == SHARE
        refused(flood(lab, 20, "/v1/tasks/batch", batch, "k"))
        quick = submit(lab, "true")
        until(lambda: lab.ledger.ends(quick), "a task to run meanwhile")
        until(lambda: lab.ledger.ends(running), "the first task to end")
        slow.join(0.1)
    slow.join()
    ended = lab.client().wait(running, timeout=30)
    assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert lab.leader() == leader
    assert lab.client().submit_many([{"command": ["true"]}], idempotency_key="other")


async def _count_waiting(dsn: str) -> int:
    conn = await asyncpg.connect(dsn)
    try:
        found: int = await conn.fetchval(
            "select count(*) from pg_stat_activity"
            " where wait_event_type = 'Lock' and datname = current_database()"
        )
        return found
    finally:
        await conn.close()


def _waiting_for_locks(dsn: str) -> int:
    return asyncio.run(_count_waiting(dsn))


def test_a_locked_table_is_ridden_out(lab: Lab) -> None:
    lab.start_server(REQUESTS__TIMEOUT="2s")
    lab.start_agent()
    leader = lab.leader()
    running = submit(lab, "sleep 2")
    until(lambda: lab.ledger.starts(running), "the task to start")
    with session(lab.dsn, "lock table duly.live in access exclusive mode"):
        refused(flood(lab, 300, "/v1/tasks", {"command": ["true"]}))
        refused(flood(lab, 300, "/v1/tasks", {"command": ["true"]}))
        # Twice the lease of its node, and three times the term.
        time.sleep(4)
    ended = lab.client().wait(running, timeout=30)
    assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert lab.leader() == leader
    assert lab.client().wait(submit(lab, "true"), timeout=30)["status"] == "done"


def test_connections_without_end_leave_files_for_nodes_and_the_database(lab: Lab) -> None:
    server = lab.start_server()
    lab.start_agent()
    assert lab.client().wait(submit(lab, "true"), timeout=30)["status"] == "done"
    running = submit(lab, "sleep 4")
    until(lambda: lab.ledger.starts(running), "the task to start")
    files = 200
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (files, files))
    with ExitStack() as idle:
        for _ in range(125):
            idle.enter_context(socket.create_connection(("127.0.0.1", lab.port), timeout=10))
        refused(flood(lab, 1, "/v1/tasks", {"command": ["true"]}))
        for _ in range(200):
            idle.enter_context(socket.create_connection(("127.0.0.1", lab.port), timeout=10))
        assert psutil.Process(server.pid).num_fds() < files - 20
        until(lambda: lab.ledger.ends(running), "the task to end")
    ended = lab.client().wait(running, timeout=30)
    assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert server.is_running()


def call(lab: Lab, key: str, path: str, body: object = None) -> Any:
    """Return what a caller with `key` is answered; raises HTTPError when it is refused."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{lab.url}{path}", data, {"Authorization": f"Bearer {key}"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_requests_without_their_bodies_keep_no_other_tenant_out(lab: Lab) -> None:
    lab.start_server(REQUESTS__OPEN_LIMIT="40")
    call(lab, lab.key, "/v1/tenants", {"name": "other", "plan": "unlimited"})
    asked = {"name": "kim", "scopes": ["submit", "read"]}
    other = call(lab, lab.key, "/v1/keys?tenant=other", asked)["key"]
    head = f"POST /v1/tasks HTTP/1.1\r\nAuthorization: Bearer {lab.key}\r\nContent-Length: 10\r\n"
    with ExitStack() as held:
        for _ in range(60):
            sock = socket.create_connection(("127.0.0.1", lab.port), timeout=10)
            held.enter_context(sock).sendall(f"{head}Host: x\r\n\r\n".encode())
        # The last ones are refused at once: those before them are inside by then.
        assert sock.recv(12) == b"HTTP/1.1 503"
        assert call(lab, other, "/v1/tasks", {"command": ["true"]})["status"] == "waiting"
        # Soon the places are free again, though nobody has hung up.
        lab.client().submit(command=["true"])
