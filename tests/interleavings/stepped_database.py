"""Connections whose statements each wait for the driver, and the actors that use them.

Real server code runs on a `SteppedDatabase`. Before each statement its actor stops at a
gate and tells what comes next; the driver opens one gate at a time. With the leave comes
a fate: the statement may be done, or the actor may die before it or after it, or the
connection may be lost before it or after it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from enum import Enum
from importlib import resources
from typing import Any

import asyncpg

from duly.store.connections.connection_classes import ConnectionClass
from duly.store.connections.request_role import ROLE
from duly.store.connections.tenant_scope import UNCONFINE_STATEMENT, confine_statements
from duly.store.database import _initialize, load_statements, translated_errors

CURRENT: ContextVar["Actor | None"] = ContextVar("actor", default=None)
"""The actor that runs; without one, statements wait for nobody."""


class Fate(Enum):
    """What becomes of a statement."""

    DONE = "done"
    DIED_BEFORE = "died before"
    DIED_AFTER = "died after"
    LOST_BEFORE = "lost the connection before"
    LOST_AFTER = "lost the connection after"


class Actor:
    """Somebody who does one thing, statement by statement."""

    def __init__(self, name: str, pace: float, arrived: asyncio.Event) -> None:
        self.name = name
        self.pace = pace
        self.at: str | None = None
        self.pid: int | None = None
        self.in_statement = False
        self.task: asyncio.Task[None]
        self._arrived = arrived
        self._leave: asyncio.Future[Fate] | None = None

    @property
    def is_done(self) -> bool:
        return self.task.done()

    def let_go(self, fate: Fate) -> None:
        """Open the gate at which this actor stands."""
        assert self._leave is not None
        leave, self._leave, self.at = self._leave, None, None
        self.in_statement = True
        leave.set_result(fate)

    async def gate(self, label: str, pid: int) -> Fate:
        """Stop before a statement, until the driver says what becomes of it."""
        self.at, self.pid = label, pid
        self._leave = asyncio.get_running_loop().create_future()
        self._arrived.set()
        try:
            return await self._leave
        finally:
            self.at = None

    def enter(self, pid: int) -> None:
        """Note that a statement runs for which no leave is asked."""
        self.pid = pid
        self.in_statement = True

    def passed(self) -> None:
        """Note that the statement is over."""
        self.in_statement = False
        self._arrived.set()


class SteppedConnection:
    """A connection of one actor; the store's functions take it for an ordinary one."""

    def __init__(self, real: asyncpg.Connection, actor: Actor | None) -> None:
        self._real = real
        self._actor = actor
        self._is_lost = False

    async def fetch(self, query: str, *values: Any) -> Any:
        return await self._step(query, lambda: self._real.fetch(query, *values))

    async def fetchrow(self, query: str, *values: Any) -> Any:
        return await self._step(query, lambda: self._real.fetchrow(query, *values))

    async def fetchval(self, query: str, *values: Any) -> Any:
        return await self._step(query, lambda: self._real.fetchval(query, *values))

    async def execute(self, query: str, *values: Any) -> Any:
        return await self._step(query, lambda: self._real.execute(query, *values))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        real = self._real.transaction()
        await self._at_once(real.start)
        try:
            yield
            await self._step("commit", real.commit)
        except BaseException:
            if self._real.is_in_transaction():
                await self._at_once(real.rollback)
            raise

    async def confine(self, tenant_id: int) -> None:
        """Keep the rest of the transaction to one tenant, which nobody else can notice."""
        await self._at_once(lambda: self._real.execute(confine_statements(ROLE, tenant_id)))

    async def unconfine(self) -> None:
        """Let the rest of the transaction reach every tenant again, which nobody can notice."""
        await self._at_once(lambda: self._real.execute(UNCONFINE_STATEMENT))

    async def _at_once(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Begin or roll back: nobody else can tell when that happens, so nobody is asked."""
        if self._actor is None:
            await call()
            return
        self._actor.enter(self._real.get_server_pid())
        try:
            await call()
        finally:
            self._actor.passed()

    async def _step(self, query: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if self._is_lost:
            raise asyncpg.ConnectionDoesNotExistError("the connection was lost")
        if self._actor is None:
            return await call()
        fate = await self._actor.gate(name_of(query), self._real.get_server_pid())
        try:
            self._suffer(fate, Fate.DIED_BEFORE, Fate.LOST_BEFORE)
            answer = await call()
            self._suffer(fate, Fate.DIED_AFTER, Fate.LOST_AFTER)
            return answer
        finally:
            self._actor.passed()

    def _suffer(self, fate: Fate, death: Fate, loss: Fate) -> None:
        if fate is death:
            raise asyncio.CancelledError
        if fate is loss:
            self._is_lost = True
            raise asyncpg.ConnectionDoesNotExistError("the connection was lost")


class SteppedDatabase:
    """What server components take for their `Database`."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._free: list[asyncpg.Connection] = []
        self._all: list[asyncpg.Connection] = []

    async def open(self, count: int) -> None:
        """Connect ahead of time, so that no actor waits for anything but its gate."""
        for _ in range(count):
            conn = await asyncpg.connect(
                self._dsn,
                server_settings={
                    "search_path": "duly",
                    "timezone": "UTC",
                    "jit": "off",
                    "deadlock_timeout": "30ms",
                    # Nothing here outlives the test, and it makes thousands of commits.
                    "synchronous_commit": "off",
                },
            )
            await _initialize(conn)
            self._free.append(conn)
            self._all.append(conn)

    async def close(self) -> None:
        for conn in self._all:
            conn.terminate()

    @asynccontextmanager
    async def connection(
        self, lane: ConnectionClass = ConnectionClass.DUTY
    ) -> AsyncIterator[SteppedConnection]:
        real = self._free.pop()
        try:
            with translated_errors():
                yield SteppedConnection(real, CURRENT.get())
        finally:
            self._free.append(real)

    @asynccontextmanager
    async def transaction(
        self, lane: ConnectionClass = ConnectionClass.DUTY
    ) -> AsyncIterator[SteppedConnection]:
        async with self.connection(lane) as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def writing_for(self, tenant_id: int) -> AsyncIterator[SteppedConnection]:
        async with self.transaction() as conn:
            await conn.confine(tenant_id)
            yield conn

    async def confine(self, conn: SteppedConnection, tenant_id: int) -> None:
        await conn.confine(tenant_id)

    async def unconfine(self, conn: SteppedConnection) -> None:
        await conn.unconfine()


def _names() -> dict[str, str]:
    folder = resources.files("duly.store").joinpath("sql")
    return {
        text: f"{file.name.removesuffix('.sql')}.{name}"
        for file in folder.iterdir()
        for name, text in load_statements(file.name).items()
    }


NAMES = _names()


def name_of(query: str) -> str:
    """Return what a statement is called in its file."""
    return NAMES.get(query, query.split("\n")[0][:50])
