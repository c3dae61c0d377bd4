"""Opens connections: to whichever host takes writes, and so that a dead one is noticed.

A DSN may name several hosts. They are asked one after another, beginning with the one
that answered last, and none waits for another: a host that swallows packets must not
keep us from the one that has taken over from it.
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

PORT = 5432
POOLER_PORT = 6432
STATEMENTS = 100
"""Prepared statements that a connection keeps."""
PATIENCE = 3.0
"""Seconds until another host is asked, too."""
LONGEST = 9.0
"""Seconds that each host has to answer."""
MOMENT = 0.2
"""Seconds that a statement gets to end after its caller went away."""
KEEPALIVE = {
    "TCP_KEEPIDLE": 3,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 6000,
}
"""A machine that acknowledges nothing for 6 seconds is gone. PostgreSQL itself may rightly be
silent for longer, while it waits for a standby."""
UNUSABLE = (
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # it does not take writes
)
"""Why another host is asked. A wrong password is no reason: it would be wrong there too."""
Host = tuple[str, int]


class PatientConnection(asyncpg.Connection):
    """A connection that is hung up, never cancelled, when its caller goes away.

    asyncpg would ask PostgreSQL to cancel the statement. If that is a commit that waits for
    its standby, PostgreSQL ends the wait and calls it committed, and a failover loses it.
    """

    _transport: asyncio.Transport

    def _cancel_current_command(
        self, sent: asyncio.Future[None], ended: asyncio.Future[None]
    ) -> None:
        """Give the statement a moment to end by itself, and hang up if it does not."""
        sent.set_result(None)
        loop = asyncio.get_running_loop()
        loop.call_later(MOMENT, lambda: None if ended.done() else self.terminate())

    def notice_death(self) -> None:
        """Let the kernel find out when the other machine is gone, however long we wait for it."""
        sock = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Connector:
    """Opens connections to the hosts of one DSN."""

    def __init__(self, dsn: str, settings: Mapping[str, str], *, pooler: str = "") -> None:
        self._dsn = dsn
        # A pooler by the transaction gives every statement to whichever session is free. It
        # takes no settings for one, and what was prepared in one is unknown in the next.
        self._settings = {} if pooler else dict(settings)
        self._cached = 0 if pooler else STATEMENTS
        self._hosts: list[Host | None] = (
            [_host(pooler, str(POOLER_PORT))] if pooler else hosts_of(dsn)
        )

    async def connect(self, *, name: str | None = None) -> PatientConnection:
        """Return a connection to the host that takes writes.

        A host that has not answered after a while gets company: it may be dead, or only slow.
        """
        hosts = list(self._hosts)
        asked: dict[asyncio.Task[PatientConnection], Host | None] = {}
        error: BaseException | None = None
        try:
            while hosts or asked:
                if hosts:
                    host = hosts.pop(0)
                    asked[asyncio.create_task(self._try(host, name))] = host
                wait = PATIENCE if hosts else None
                done, _ = await asyncio.wait(asked, timeout=wait, return_when=FIRST_COMPLETED)
                for task in done:
                    host = asked.pop(task)
                    try:
                        conn = task.result()
                    except UNUSABLE as failure:
                        error = failure
                    else:
                        self._prefer(host)
                        return conn
        finally:
            for task in asked:
                task.cancel()
                task.add_done_callback(_hang_up)
        raise error or ConfigError("The DSN names no host.")

    async def connect_for_pool(self, *_: Any, **__: Any) -> PatientConnection:
        """Return a connection; what a pool says about it is known here already."""
        return await self.connect()

    async def _try(self, host: Host | None, name: str | None) -> PatientConnection:
        conn = await asyncpg.connect(
            self._dsn,
            host=None if host is None else host[0],
            port=None if host is None else host[1],
            timeout=LONGEST,
            statement_cache_size=self._cached,
            connection_class=PatientConnection,
            server_settings={**self._settings, **({"application_name": name} if name else {})},
            target_session_attrs=None if _says_which(self._dsn) else SessionAttribute.read_write,
        )
        conn.notice_death()
        return conn

    def _prefer(self, host: Host | None) -> None:
        if self._hosts[0] != host:
            self._hosts.remove(host)
            self._hosts.insert(0, host)


def _hang_up(task: asyncio.Task[PatientConnection]) -> None:
    """Let go of a connection that came too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


def hosts_of(dsn: str) -> list[Host | None]:
    """Return the hosts that a DSN names; None stands for whatever asyncpg takes by default."""
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
        return unquote(name).strip("[]"), int(port or PORT)
    except ValueError:
        raise ConfigError(f"Cannot use this database: {port!r} is not a port.") from None


def _says_which(dsn: str) -> bool:
    return "target_session_attrs" in parse_qs(urlsplit(dsn).query)
