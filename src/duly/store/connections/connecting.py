"""Opens connections to the host that takes writes, and detects dead hosts.

A DSN may name several hosts. They are tried in a staggered race, starting with the host that
answered last: a host that swallows packets must not delay the connection to the one that has
taken over from it.

Decision: docs/adr/0009-unconfirmed-commits.md.
"""

import asyncio
import socket
from asyncio import FIRST_COMPLETED
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from duly.errors import ConfigError

DEFAULT_PORT = 5432
DEFAULT_POOLER_PORT = 6432
STATEMENT_CACHE_SIZE = 100
"""Prepared statements cached per connection."""
NEXT_HOST_DELAY_SECONDS = 3.0
"""After this long without an answer, the next host is tried in parallel."""
CONNECT_TIMEOUT_SECONDS = 9.0
"""Limit per host."""
ABANDONED_STATEMENT_GRACE_SECONDS = 0.2
"""How long a statement may go on after its caller was cancelled."""
TCP_KEEPALIVE_OPTIONS = {
    "TCP_KEEPIDLE": 3,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 6000,
}
"""A machine that acknowledges no packet for 6 seconds is gone. PostgreSQL itself may be silent
for longer, while it waits for a standby."""
HOST_ERRORS = (
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the host is read-only
)
"""Errors after which the next host is tried. A wrong password is wrong on every host."""
Host = tuple[str, int]


class NoCancelConnection(asyncpg.Connection):
    """A connection that is closed, instead of sending a cancel request, when its caller goes away.

    asyncpg would ask PostgreSQL to cancel the statement. If that is a commit waiting for its
    standby, PostgreSQL ends the wait and reports it committed, and a failover would lose it.
    """

    _transport: asyncio.Transport

    def _cancel_current_command(
        self, sent: asyncio.Future[None], ended: asyncio.Future[None]
    ) -> None:
        """Let the statement finish within the grace period, and close the connection otherwise."""
        sent.set_result(None)
        loop = asyncio.get_running_loop()
        loop.call_later(
            ABANDONED_STATEMENT_GRACE_SECONDS, lambda: None if ended.done() else self.terminate()
        )

    def enable_keepalive(self) -> None:
        """Let the kernel detect a dead peer while a statement waits."""
        sock = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in TCP_KEEPALIVE_OPTIONS.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Connector:
    """Opens connections to the hosts of one DSN."""

    def __init__(self, dsn: str, settings: Mapping[str, str], *, pooler: str = "") -> None:
        self._dsn = dsn
        # A transaction-mode pooler runs each transaction on any free session: it passes on no
        # session settings, and a statement prepared in one session is unknown in the next.
        self._settings = {} if pooler else dict(settings)
        self._cache_size = 0 if pooler else STATEMENT_CACHE_SIZE
        self._hosts: list[Host | None] = (
            [_host(pooler, str(DEFAULT_POOLER_PORT))] if pooler else hosts_of(dsn)
        )

    async def connect(self, *, name: str | None = None) -> NoCancelConnection:
        """Return a connection to the host that takes writes.

        If a host has not answered after a while, the next one is tried as well.
        """
        hosts = list(self._hosts)
        attempts: dict[asyncio.Task[NoCancelConnection], Host | None] = {}
        error: BaseException | None = None
        try:
            while hosts or attempts:
                if hosts:
                    host = hosts.pop(0)
                    attempts[asyncio.create_task(self._try(host, name))] = host
                wait = NEXT_HOST_DELAY_SECONDS if hosts else None
                done, _ = await asyncio.wait(attempts, timeout=wait, return_when=FIRST_COMPLETED)
                for task in done:
                    host = attempts.pop(task)
                    try:
                        conn = task.result()
                    except HOST_ERRORS as failure:
                        error = failure
                    else:
                        self._prefer(host)
                        return conn
        finally:
            for task in attempts:
                task.cancel()
                task.add_done_callback(_close_late_connection)
        raise error or ConfigError("The DSN names no host.")

    async def connect_for_pool(self, *_: Any, **__: Any) -> NoCancelConnection:
        """Return a connection; the pool's own arguments repeat what the connector knows."""
        return await self.connect()

    async def _try(self, host: Host | None, name: str | None) -> NoCancelConnection:
        conn = await asyncpg.connect(
            self._dsn,
            host=None if host is None else host[0],
            port=None if host is None else host[1],
            timeout=CONNECT_TIMEOUT_SECONDS,
            statement_cache_size=self._cache_size,
            connection_class=NoCancelConnection,
            server_settings={**self._settings, **({"application_name": name} if name else {})},
            target_session_attrs=None
            if _sets_target_session(self._dsn)
            else SessionAttribute.read_write,
        )
        conn.enable_keepalive()
        return conn

    def _prefer(self, host: Host | None) -> None:
        if self._hosts[0] != host:
            self._hosts.remove(host)
            self._hosts.insert(0, host)


def _close_late_connection(task: asyncio.Task[NoCancelConnection]) -> None:
    """Close a connection that lost the race."""
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


def hosts_of(dsn: str) -> list[Host | None]:
    """Return the hosts in a DSN; None stands for asyncpg's default."""
    try:
        parts = urlsplit(dsn)
        query = parse_qs(parts.query)
    except ValueError as error:
        raise ConfigError(f"Cannot use this database: {error}") from error
    names = parts.netloc.rpartition("@")[2] or ",".join(query.get("host", []))
    ports = ",".join(query.get("port", [])).split(",")
    given = [name for name in names.split(",") if name]
    if len(given) < 2:
        return [None]
    return [_host(text, ports[min(at, len(ports) - 1)]) for at, text in enumerate(given)]


def _host(text: str, default_port: str) -> Host:
    name, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = text, default_port
    try:
        return unquote(name).strip("[]"), int(port or DEFAULT_PORT)
    except ValueError:
        raise ConfigError(f"Cannot use this database: {port!r} is not a port.") from None


def _sets_target_session(dsn: str) -> bool:
    return "target_session_attrs" in parse_qs(urlsplit(dsn).query)
