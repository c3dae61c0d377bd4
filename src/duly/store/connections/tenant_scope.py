"""A connection that reads one tenant's rows and nothing else, for the length of a request.

Role and tenant are set for the transaction alone: what is set for a session would still
hold for whoever gets the connection next, here or behind a pooler. To begin costs one
exchange with PostgreSQL. Nobody waits for the end: nothing was written.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING

import asyncpg

from duly.errors import DulyError

if TYPE_CHECKING:
    from duly.store.database import Connection, Lent


def confinement(role: str, tenant_id: int) -> str:
    """Return what keeps the rest of a transaction to one tenant's rows.

    Without a role only the tenant is named, which binds nobody: that was chosen.
    """
    take_on = f"set local role {role}; " if role else ""
    return f"{take_on}set local duly.tenant = {tenant_id:d}"


UNCONFINED = "set local role to default"
"""Lets the rest of a transaction reach the rows of every tenant again."""


class Confined:
    """A connection while it is lent for reading; a class for the reason that `Lent` is one."""

    __slots__ = ("_begin", "_conn", "_ending", "_lent")

    def __init__(self, lent: "Lent", begin: str, ending: "set[asyncio.Task[None]]") -> None:
        self._lent = lent
        self._begin = begin
        # Who keeps what is being given back: a task that nobody holds may vanish half done.
        self._ending = ending

    async def __aenter__(self) -> "Connection":
        self._conn = await self._lent.__aenter__()
        try:
            await self._conn.execute(self._begin)
        except BaseException as error:
            await self._break_off(error)
            raise
        return self._conn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, DulyError):
            ending = asyncio.create_task(self._end())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        else:
            await self._break_off(error)

    async def _end(self) -> None:
        error: BaseException | None = None
        try:
            await self._conn.execute("commit")
        except BaseException as failure:
            error = failure
            self._hang_up()
        with contextlib.suppress(DulyError):
            await self._lent.__aexit__(None if error is None else type(error), error, None)

    async def _break_off(self, error: BaseException) -> None:
        """Give the connection back without its transaction, or not at all."""
        try:
            await self._conn.execute("rollback")
        except BaseException:  # it is lost, or still busy with what was broken off
            self._hang_up()
        await self._lent.__aexit__(type(error), error, error.__traceback__)

    def _hang_up(self) -> None:
        # One that is lost has left the pool by itself, and cannot be hung up any more.
        with contextlib.suppress(asyncpg.InterfaceError):
            self._conn.terminate()
