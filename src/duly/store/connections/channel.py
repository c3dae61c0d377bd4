"""The line on which servers tell each other that something has happened.

PostgreSQL's NOTIFY, on a connection of its own: inside a transaction that writes
tasks it would take a lock that all servers share. What is told is only a hint, and
may be lost; behind a pooler that hands out connections by the transaction nothing
is heard at all.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg

from duly.store.database import Database, load_statements, translated

SQL = load_statements("channel.sql")
NAME = "duly"
PATIENCE = 5.0
"""Seconds after which a silent PostgreSQL counts as gone."""


class Channel:
    """An open line; it is not mended but opened anew."""

    def __init__(self, conn: asyncpg.Connection, lost: Callable[[], None]) -> None:
        self._conn = conn
        self._lost = lost
        conn.add_termination_listener(self._end)

    @classmethod
    async def open(
        cls, database: Database, hear: Callable[[str], None], lost: Callable[[], None]
    ) -> "Channel":
        """Begin to listen: `hear` gets what other servers tell, `lost` is called at the end."""
        conn = await database.connect_apart("duly herald")
        own = conn.get_server_pid()

        def pass_on(_: Any, sender: int, channel: str, text: Any) -> None:
            if sender != own:
                hear(str(text))

        try:
            with translated():
                await conn.add_listener(NAME, pass_on)
        except BaseException:
            conn.terminate()
            raise
        return cls(conn, lost)

    def _end(self, _: Any) -> None:
        self._lost()

    @property
    def is_open(self) -> bool:
        """Say whether the line is not known to be cut."""
        return not self._conn.is_closed()

    async def tell(self, text: str) -> None:
        """Tell every other server; commits by itself."""
        with translated():
            await self._conn.execute(SQL["tell"], NAME, text, timeout=PATIENCE)

    async def has_company(self, silence: timedelta) -> bool:
        """Say whether more than one server has been heard of for `silence`; notices a cut line."""
        with translated():
            found: bool = await self._conn.fetchval(SQL["has_company"], silence, timeout=PATIENCE)
        return found

    def close(self) -> None:
        """Hang up at once; nobody is told that the line is lost."""
        self._conn.remove_termination_listener(self._end)
        self._conn.terminate()
