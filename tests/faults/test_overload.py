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
TENANT_CONNECTIONS = (
    slots_per_class(DatabaseSettings().connections)[ConnectionClass.CLIENT] + 1
) // 2
"""The share of client connections that one tenant may use."""
MAX_GROWTH_BYTES = 60 * 2**20
"""Bytes by which a server may grow between two waves of clients."""
MAX_SECONDS = 15.0
"""Less than the 30 seconds that the Python client waits."""


@contextmanager
def session(dsn: str, *statements: str) -> Iterator[None]:
    """Run statements in a transaction that stays open for the duration of the block."""
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
    async with session.post(path, json=body, headers=headers, trace_request_ctx=sent) as response:
        await response.read()
        return response.status, response.headers.get("Retry-After"), time.monotonic() - sent[-1]


def _trace_send_times() -> aiohttp.TraceConfig:
    """Return a trace that records when a request is sent, to exclude delays of the client."""

    async def record_time(_: object, trace: Any, __: object) -> None:
        trace.trace_request_ctx.append(time.monotonic())

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(record_time)
    return config


def flood(
    lab: Lab, clients: int, path: str, body: object, key: str | None = None
) -> list[tuple[int, str | None, float]]:
    """Send requests concurrently; return the status, Retry-After and seconds of each."""

    async def send_all() -> list[tuple[int, str | None, float]]:
        async with aiohttp.ClientSession(
            lab.url,
            headers={"Authorization": f"Bearer {lab.key}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=60),
            trace_configs=[_trace_send_times()],
        ) as session:
            return await asyncio.gather(*(_post(session, path, body, key) for _ in range(clients)))

    return asyncio.run(send_all())


def check_refused(responses: list[tuple[int, str | None, float]]) -> None:
    """Check that all requests got 503 with Retry-After in time."""
    assert Counter(status for status, _, _ in responses) == {503: len(responses)}
    assert all(after is not None and int(after) >= 1 for _, after, _ in responses)
    assert max(seconds for _, _, seconds in responses) < MAX_SECONDS


def shed_requests(lab: Lab) -> float:
    """Return the number of requests that were shed before they were read."""
    request = Request(f"{lab.url}/metrics", headers={"Authorization": f"Bearer {lab.key}"})
    with urlopen(request, timeout=30) as response:
        match = re.search(
            r'duly_requests_shed_total{bulkhead="open"} (\S+)', response.read().decode()
        )
    return float(match[1]) if match else 0.0


def resident_memory(server: Program) -> int:
    rss: int = psutil.Process(server.pid).memory_info().rss
    return rss


@pytest.fixture
def proxied_postgres(dsn: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of PostgreSQL's socket, and a DSN through it."""
    folder = Path(tempfile.mkdtemp(prefix="duly-proxy-"))
    parts = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    name = f".s.PGSQL.{query['port']}"
    proxy = Proxy(Path(query["host"]) / name, folder / name)
    proxied_dsn = parts._replace(query=f"host={quote(str(folder))}&port={query['port']}").geturl()
    yield proxy, proxied_dsn
    proxy.close()
    shutil.rmtree(folder)


def test_two_thousand_clients_of_a_stalled_database_get_retry_after(
    lab: Lab, proxied_postgres: tuple[Proxy, str]
) -> None:
    proxy, proxied_dsn = proxied_postgres
    server = lab.start_server(dsn=proxied_dsn, REQUESTS__TIMEOUT="3s", REQUESTS__OPEN_LIMIT="1000")
    body = {"command": ["true"], "env": {"FILLER": "x" * 10_000}}
    assert Counter(status for status, _, _ in flood(lab, 200, "/v1/tasks", body)) == {201: 200}

    proxy.partition()
    check_refused(flood(lab, CLIENTS, "/v1/tasks", body))
    before = resident_memory(server)
    for _ in range(2):
        check_refused(flood(lab, CLIENTS, "/v1/tasks", body))
    assert resident_memory(server) - before < MAX_GROWTH_BYTES

    proxy.heal()
    healed_at = time.monotonic()
    task = lab.client().submit(command=["true"])["id"]
    assert time.monotonic() - healed_at < 10
    assert shed_requests(lab) > 0
    stored = lab.client().list_tasks(limit=1000)["items"]
    # Of the thousands of refused requests at most one group was in progress.
    assert len(stored) <= 200 + 500 + 1 and stored[0]["id"] == task


def test_slow_batches_affect_neither_leases_nor_the_term_nor_single_submits(lab: Lab) -> None:
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
        until(lambda: _waiting_for_locks(lab.dsn) >= TENANT_CONNECTIONS, "slow batches")
        assert _waiting_for_locks(lab.dsn) == TENANT_CONNECTIONS
        check_refused(flood(lab, 20, "/v1/tasks/batch", batch, "k"))
        single = submit(lab, "true")
        until(lambda: lab.ledger.ends(single), "a task to run meanwhile")
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
        waiting: int = await conn.fetchval(
            "select count(*) from pg_stat_activity"
            " where wait_event_type = 'Lock' and datname = current_database()"
        )
        return waiting
    finally:
        await conn.close()


def _waiting_for_locks(dsn: str) -> int:
    return asyncio.run(_count_waiting(dsn))


def test_the_cluster_survives_a_locked_table(lab: Lab) -> None:
    lab.start_server(REQUESTS__TIMEOUT="2s")
    lab.start_agent()
    leader = lab.leader()
    running = submit(lab, "sleep 2")
    until(lambda: lab.ledger.starts(running), "the task to start")
    with session(lab.dsn, "lock table duly.live in access exclusive mode"):
        check_refused(flood(lab, 300, "/v1/tasks", {"command": ["true"]}))
        check_refused(flood(lab, 300, "/v1/tasks", {"command": ["true"]}))
        # Twice the lease of the node, and three times the term.
        time.sleep(4)
    ended = lab.client().wait(running, timeout=30)
    assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert lab.leader() == leader
    assert lab.client().wait(submit(lab, "true"), timeout=30)["status"] == "done"


def test_idle_connections_leave_file_descriptors_for_nodes_and_the_database(lab: Lab) -> None:
    server = lab.start_server()
    lab.start_agent()
    assert lab.client().wait(submit(lab, "true"), timeout=30)["status"] == "done"
    running = submit(lab, "sleep 4")
    until(lambda: lab.ledger.starts(running), "the task to start")
    files = 200
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (files, files))
    with ExitStack() as sockets:
        for _ in range(125):
            sockets.enter_context(socket.create_connection(("127.0.0.1", lab.port), timeout=10))
        check_refused(flood(lab, 1, "/v1/tasks", {"command": ["true"]}))
        for _ in range(200):
            sockets.enter_context(socket.create_connection(("127.0.0.1", lab.port), timeout=10))
        assert psutil.Process(server.pid).num_fds() < files - 20
        until(lambda: lab.ledger.ends(running), "the task to end")
    ended = lab.client().wait(running, timeout=30)
    assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert server.is_running()


def call(lab: Lab, key: str, path: str, body: object = None) -> Any:
    """Call a route with `key`, and return the decoded response; raises HTTPError if refused."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{lab.url}{path}", data, {"Authorization": f"Bearer {key}"})
    with urlopen(request, timeout=30) as response:
        return json.load(response)


def test_requests_without_bodies_do_not_lock_out_other_tenants(lab: Lab) -> None:
    lab.start_server(REQUESTS__OPEN_LIMIT="40")
    call(lab, lab.key, "/v1/tenants", {"name": "other", "plan": "unlimited"})
    fields = {"name": "kim", "scopes": ["submit", "read"]}
    other = call(lab, lab.key, "/v1/keys?tenant=other", fields)["key"]
    head = f"POST /v1/tasks HTTP/1.1\r\nAuthorization: Bearer {lab.key}\r\nContent-Length: 10\r\n"
    with ExitStack() as sockets:
        for _ in range(60):
            sock = socket.create_connection(("127.0.0.1", lab.port), timeout=10)
            sockets.enter_context(sock).sendall(f"{head}Host: x\r\n\r\n".encode())
        # The last ones are refused at once: the limit of open requests is reached.
        assert sock.recv(12) == b"HTTP/1.1 503"
        assert call(lab, other, "/v1/tasks", {"command": ["true"]})["status"] == "waiting"
        # Requests without bodies time out, although no client has disconnected.
        lab.client().submit(command=["true"])
