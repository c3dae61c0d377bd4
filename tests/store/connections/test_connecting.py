"""Which host of a DSN is spoken to, and how its death is noticed."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import pytest

from duly.errors import ConfigError, Unavailable
from duly.store.connections import connecting
from duly.store.connections.connecting import Connector, hosts_of
from duly.store.database import Database


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgresql://me@db1/duly", [None]),
        ("postgresql:///duly?host=/run/postgresql", [None]),
        ("postgresql://me:p%40ss@db1,db2/duly", [("db1", 5432), ("db2", 5432)]),
        ("postgresql://db1:1111,db2:2222/duly", [("db1", 1111), ("db2", 2222)]),
        ("postgresql://[::1]:1111,[fe80::1]/duly", [("::1", 1111), ("fe80::1", 5432)]),
        ("postgresql:///duly?host=db1,db2&port=1111,2222", [("db1", 1111), ("db2", 2222)]),
        ("postgresql:///duly?host=db1,db2&port=1111", [("db1", 1111), ("db2", 1111)]),
    ],
)
def test_the_hosts_of_a_dsn(dsn: str, hosts: list[object]) -> None:
    assert hosts_of(dsn) == hosts


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="'many' is not a port"):
        hosts_of("postgresql://db1:many,db2/duly")


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a host that takes connections and never says a word."""
    monkeypatch.setattr(connecting, "NEXT_HOST_DELAY_SECONDS", 0.2)
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT_SECONDS", 0.6)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
async def tcp_dsn(dsn: str) -> AsyncIterator[str]:
    """A database that is reached over TCP: a relay in front of its unix socket."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    path = f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}"

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        finally:
            sink.transport.abort()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = await asyncio.open_unix_connection(path)
        await asyncio.gather(
            pump(reader, theirs[1]), pump(theirs[0], writer), return_exceptions=True
        )

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield urlunsplit(parts._replace(netloc=f"{parts.netloc}127.0.0.1:{port}", query=""))
    server.close()


def _with_hosts(dsn: str, *ports: int) -> str:
    """Return `dsn` with other hosts asked before its own."""
    parts = urlsplit(dsn)
    user, _, own = parts.netloc.rpartition("@")
    hosts = ",".join([*(f"127.0.0.1:{port}" for port in ports), own])
    return urlunsplit(parts._replace(netloc=f"{user}@{hosts}"))


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_hosts_that_are_mute_or_gone_do_not_hide_the_one_that_works(
    tcp_dsn: str, mute: int
) -> None:
    dsn = _with_hosts(tcp_dsn, mute, _closed_port())
    async with await Database.connect(dsn) as database, database.connection() as conn:
        assert await conn.fetchval("select 1") == 1


async def test_a_host_that_is_slow_is_used_all_the_same(
    tcp_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "NEXT_HOST_DELAY_SECONDS", 0.001)
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT_SECONDS", 10)
    own = urlsplit(tcp_dsn).netloc.rpartition("@")[2]
    dsn = tcp_dsn.replace(own, f"{own},127.0.0.1:{_closed_port()}")
    conn = await Connector(dsn, {}).connect()
    assert await conn.fetchval("select 1") == 1
    conn.terminate()


async def test_the_host_that_worked_is_asked_first_the_next_time(tcp_dsn: str, mute: int) -> None:
    connector = Connector(_with_hosts(tcp_dsn, mute), {})
    for _ in range(2):
        conn = await connector.connect()
        conn.terminate()
    loop = asyncio.get_running_loop()
    began = loop.time()
    conn = await connector.connect()
    assert loop.time() - began < connecting.NEXT_HOST_DELAY_SECONDS
    conn.terminate()


async def test_when_no_host_works_the_database_is_away(mute: int) -> None:
    dsn = f"postgresql://me@127.0.0.1:{mute},127.0.0.1:{_closed_port()}/duly"
    with pytest.raises(Unavailable):
        await Database.connect(dsn)


async def test_a_host_that_takes_no_writes_is_not_used(tcp_dsn: str) -> None:
    read_only = Connector(tcp_dsn, {"default_transaction_read_only": "on"})
    with pytest.raises(connecting.HOST_ERRORS, match="read_write"):
        await read_only.connect()


async def test_a_connection_whose_host_stops_taking_writes_is_given_up(database: Database) -> None:
    async with database.connection() as conn:
        first = conn.get_server_pid()
        await conn.execute("set session characteristics as transaction read only")
    with pytest.raises(Unavailable):
        async with database.transaction() as conn:
            await conn.execute("delete from node_tokens")
    async with database.transaction() as conn:
        assert conn.get_server_pid() != first
        await conn.execute("delete from node_tokens")


async def test_a_peer_that_vanishes_is_noticed_by_the_kernel(tcp_dsn: str) -> None:
    conn = await Connector(tcp_dsn, {}).connect()
    sock = conn._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    for option, value in connecting.TCP_KEEPALIVE_OPTIONS.items():
        assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) == value
    conn.terminate()


async def test_the_loss_of_a_connection_is_told_as_it_was(database: Database) -> None:
    with pytest.raises(Unavailable) as lost:
        async with database.connection() as conn:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await conn.execute("select pg_terminate_backend(pg_backend_pid())")
            raise ConnectionResetError(104, "Cut")
    assert lost.value.message == "PostgreSQL cannot answer now: cut"


async def test_who_loses_its_connection_is_told_so_in_words_of_ours(database: Database) -> None:
    with pytest.raises(Unavailable, match=r"cannot answer now: the connection was lost$"):
        async with database.transaction() as conn:
            conn.terminate()
            await conn.execute("select 1")
