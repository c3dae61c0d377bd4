"""LISTEN and NOTIFY between servers, on a dedicated connection.

NOTIFY inside a transaction that writes tasks would take a lock that all servers share at commit.
Messages are hints and may be lost. A transaction-mode pooler does not support LISTEN, so the
connection bypasses the pooler.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg

from duly.store.database import Database, load_statements, translated_errors

SQL = load_statements("channel.sql")
CHANNEL = "duly"
STATEMENT_TIMEOUT_SECONDS = 5.0
"""A PostgreSQL that does not answer for this long counts as gone."""


class Channel:
    """An open connection that listens; after a disconnect, open a new one."""

    def __init__(self, conn: asyncpg.Connection, on_disconnect: Callable[[], None]) -> None:
        self._conn = conn
        self._on_disconnect = on_disconnect
        conn.add_termination_listener(self._on_termination)

    @classmethod
    async def open(
        cls,
        database: Database,
        on_message: Callable[[str], None],
        on_disconnect: Callable[[], None],
    ) -> "Channel":
        """Start listening: `on_message` is called for every message of another server."""
        conn = await database.connect_apart("duly server bus")
        own_pid = conn.get_server_pid()

        def on_notification(_: Any, sender_pid: int, channel: str, text: Any) -> None:
            if sender_pid != own_pid:
                on_message(str(text))

        try:
            with translated_errors():
                await conn.add_listener(CHANNEL, on_notification)
        except BaseException:
            conn.terminate()
            raise
        return cls(conn, on_disconnect)

    def _on_termination(self, _: Any) -> None:
        self._on_disconnect()

    @property
    def is_open(self) -> bool:
        """Return False once the connection is known to be closed."""
        return not self._conn.is_closed()

    async def notify(self, text: str) -> None:
        """Send a message to every other server, in a transaction of its own."""
        with translated_errors():
            await self._conn.execute(
                SQL["notify"], CHANNEL, text, timeout=STATEMENT_TIMEOUT_SECONDS
            )

    async def has_peers(self, silence: timedelta) -> bool:
        """Return True if more than one server sent a heartbeat within `silence`.

        The query also detects a broken connection.
        """
        with translated_errors():
            has_peers: bool = await self._conn.fetchval(
                SQL["has_peers"], silence, timeout=STATEMENT_TIMEOUT_SECONDS
            )
        return has_peers

    def close(self) -> None:
        """Close the connection at once, without calling `on_disconnect`."""
        self._conn.remove_termination_listener(self._on_termination)
        self._conn.terminate()
