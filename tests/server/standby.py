"""A synchronous standby that can be lost, and waits for it that can be cancelled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.conftest import as_superuser

WAITING = "select pid, query from pg_stat_activity where wait_event = 'SyncRep'"
COMMIT = "select pg_logical_emit_message(true, 'probe', '')"
"""Writes something that has to be committed, and nothing that anybody reads."""


class Standby:
    """The one that PostgreSQL waits for."""

    def __init__(self, dsn: str, admin: asyncpg.Connection) -> None:
        self._dsn = dsn
        self._admin = admin

    async def lose(self) -> None:
        """Let every commit wait from now on."""
        await self._set("nobody")
        while not await self._holds_a_commit():
            await asyncio.sleep(0.01)

    async def forget(self) -> None:
        """Let PostgreSQL do without it; whoever waits goes on."""
        await self._set("")

    async def waiting(self, query: str = "") -> int:
        """Return the backend that waits for it with a statement like `query`, once there is one."""
        while True:
            for row in await self._admin.fetch(WAITING):
                if query in row["query"]:
                    return int(row["pid"])
            await asyncio.sleep(0.01)

    async def cancel_wait(self) -> None:
        await self._admin.execute("select pg_cancel_backend($1)", await self.waiting())

    async def cancel_waits_until(self, done: "asyncio.Future[Any]") -> None:
        """Cancel whatever waits, until something has come to its end."""
        while not done.done():
            for row in await self._admin.fetch(WAITING):
                await self._admin.execute("select pg_cancel_backend($1)", row["pid"])
            await asyncio.sleep(0.01)

    async def _holds_a_commit(self) -> bool:
        """Return whether commits wait already, which is up to PostgreSQL's checkpointer.

        That a session sees the setting says nothing: the checkpointer may read it later.
        """
        async with _connected(self._dsn, "on") as conn:
            pid = conn.get_server_pid()
            commit = asyncio.ensure_future(conn.execute(COMMIT))
            held = False
            while not (held or commit.done()):
                held = any(row["pid"] == pid for row in await self._admin.fetch(WAITING))
            if held:
                await self._admin.execute("select pg_cancel_backend($1)", pid)
            await commit
            return held

    async def _set(self, name: str) -> None:
        await self._admin.execute(f"alter system set synchronous_standby_names = '{name}'")
        await self._admin.execute("select pg_reload_conf()")
        while await self._admin.fetchval("show synchronous_standby_names") != name:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def open_standby(dsn: str) -> AsyncIterator[Standby]:
    """Give a standby to lose, which is forgotten at the end."""
    async with _connected(as_superuser(dsn), "local") as admin:
        standby = Standby(dsn, admin)
        try:
            yield standby
        finally:
            await standby.forget()


@asynccontextmanager
async def _connected(dsn: str, synchronous_commit: str) -> AsyncIterator[asyncpg.Connection]:
    settings = {"synchronous_commit": synchronous_commit}
    conn = await asyncpg.connect(dsn, server_settings=settings)
    try:
        yield conn
    finally:
        await conn.close()
