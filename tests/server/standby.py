"""A synchronous standby that can be lost, and waits for it that can be cancelled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

WAITING = "select pid, query from pg_stat_activity where wait_event = 'SyncRep'"


class Standby:
    """The one that PostgreSQL waits for."""

    def __init__(self, admin: asyncpg.Connection) -> None:
        self._admin = admin

    async def lose(self) -> None:
        await self._set("nobody")

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

    async def _set(self, name: str) -> None:
        await self._admin.execute(f"alter system set synchronous_standby_names = '{name}'")
        await self._admin.execute("select pg_reload_conf()")
        while await self._admin.fetchval("show synchronous_standby_names") != name:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def open_standby(dsn: str) -> AsyncIterator[Standby]:
    admin = await asyncpg.connect(dsn, server_settings={"synchronous_commit": "local"})
    standby = Standby(admin)
    try:
        yield standby
    finally:
        await standby.forget()
        await admin.close()
