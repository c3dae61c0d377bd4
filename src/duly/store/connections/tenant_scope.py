"""A read-only connection restricted to one tenant's rows for the length of a request.

Role and tenant are set for the transaction only: session settings would leak to the next user of
the connection, here or behind a pooler. Starting costs one round trip. The request does not wait
for the commit, since nothing was written.

Decision: docs/adr/0014-row-level-security.md.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING

import asyncpg

from duly.errors import DulyError

if TYPE_CHECKING:
    from duly.store.database import BorrowedConnection, Connection


def confine_statements(role: str, tenant_id: int) -> str:
    """Return the statements that restrict the rest of a transaction to one tenant's rows.

    Without a role only the tenant is set, which restricts nothing: the operator chose that.
    """
    set_role = f"set local role {role}; " if role else ""
    return f"{set_role}set local duly.tenant = {tenant_id:d}"


UNCONFINE_STATEMENT = "set local role to default"
"""Lets the rest of a transaction reach the rows of every tenant again."""


class TenantScope:
    """A connection borrowed to read one tenant; a class for speed, like `BorrowedConnection`."""

    __slots__ = ("_begin", "_borrowed", "_conn", "_releasing")

    def __init__(
        self, borrowed: "BorrowedConnection", begin: str, releasing: "set[asyncio.Task[None]]"
    ) -> None:
        self._borrowed = borrowed
        self._begin = begin
        # Keeps a reference to pending releases: an unreferenced task may be garbage-collected.
        self._releasing = releasing

    async def __aenter__(self) -> "Connection":
        self._conn = await self._borrowed.__aenter__()
        try:
            await self._conn.execute(self._begin)
        except BaseException as error:
            await self._abort(error)
            raise
        return self._conn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, DulyError):
            release = asyncio.create_task(self._commit_and_release())
            self._releasing.add(release)
            release.add_done_callback(self._releasing.discard)
        else:
            await self._abort(error)

    async def _commit_and_release(self) -> None:
        error: BaseException | None = None
        try:
            await self._conn.execute("commit")
        except BaseException as failure:
            error = failure
            self._terminate()
        with contextlib.suppress(DulyError):
            await self._borrowed.__aexit__(None if error is None else type(error), error, None)

    async def _abort(self, error: BaseException) -> None:
        """Roll back and release the connection, or close it."""
        try:
            await self._conn.execute("rollback")
        except BaseException:  # it is lost, or still busy with the cancelled statement
            self._terminate()
        await self._borrowed.__aexit__(type(error), error, error.__traceback__)

    def _terminate(self) -> None:
        # A lost connection has already left the pool and cannot be terminated again.
        with contextlib.suppress(asyncpg.InterfaceError):
            self._conn.terminate()
