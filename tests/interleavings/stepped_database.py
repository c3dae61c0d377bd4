"""Connections whose statements each wait for the driver, and the actors that use them.

Real server code runs on a `SteppedDatabase`. Before each statement its actor stops at a gate, with
the name of the statement; the driver opens one gate at a time. It also decides the fate of the
statement: it is executed, or the actor dies, or the connection is lost, before or after it.
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
"""The current actor; without one, statements are executed at once."""


class Fate(Enum):
    """The fate of a statement."""

    DONE = "done"
    DIED_BEFORE = "died before"
    DIED_AFTER = "died after"
    LOST_BEFORE = "lost the connection before"
    LOST_AFTER = "lost the connection after"


class Actor:
    """A coroutine that does one operation, statement by statement."""

    def __init__(self, name: str, speed: float, arrived: asyncio.Event) -> None:
        self.name = name
        self.speed = speed
        self.waiting_at: str | None = None
        self.pid: int | None = None
        self.in_statement = False
        self.task: asyncio.Task[None]
        self._arrived = arrived
        self._gate: asyncio.Future[Fate] | None = None

    @property
    def is_done(self) -> bool:
        return self.task.done()

    def open_gate(self, fate: Fate) -> None:
        """Let the actor execute the statement at whose gate it waits."""
        assert self._gate is not None
        gate, self._gate, self.waiting_at = self._gate, None, None
        self.in_statement = True
        gate.set_result(fate)

    async def gate(self, label: str, pid: int) -> Fate:
        """Wait before a statement until the driver has decided its fate."""
        self.waiting_at, self.pid = label, pid
        self._gate = asyncio.get_running_loop().create_future()
        self._arrived.set()
        try:
            return await self._gate
        finally:
            self.waiting_at = None

    def enter_statement(self, pid: int) -> None:
        """Mark the actor as executing a statement that has no gate."""
        self.pid = pid
        self.in_statement = True

    def leave_statement(self) -> None:
        """Mark the statement as finished."""
        self.in_statement = False
        self._arrived.set()


class SteppedConnection:
    """A connection of one actor, with the interface that the store's functions use."""

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
        await self._without_gate(real.start)
        try:
            yield
            await self._step("commit", real.commit)
        except BaseException:
            if self._real.is_in_transaction():
                await self._without_gate(real.rollback)
            raise

    async def confine(self, tenant_id: int) -> None:
        """Confine the rest of the transaction to one tenant, which no other actor can observe."""
        await self._without_gate(lambda: self._real.execute(confine_statements(ROLE, tenant_id)))

    async def unconfine(self) -> None:
        """End the confinement for the rest of the transaction, which no other actor can observe."""
        await self._without_gate(lambda: self._real.execute(UNCONFINE_STATEMENT))

    async def _without_gate(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Execute without a gate what no other actor can observe, such as begin or rollback."""
        if self._actor is None:
            await call()
            return
        self._actor.enter_statement(self._real.get_server_pid())
        try:
            await call()
        finally:
            self._actor.leave_statement()

    async def _step(self, query: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if self._is_lost:
            raise asyncpg.ConnectionDoesNotExistError("the connection was lost")
        if self._actor is None:
            return await call()
        fate = await self._actor.gate(name_of(query), self._real.get_server_pid())
        try:
            self._apply_fate(fate, Fate.DIED_BEFORE, Fate.LOST_BEFORE)
            result = await call()
            self._apply_fate(fate, Fate.DIED_AFTER, Fate.LOST_AFTER)
            return result
        finally:
            self._actor.leave_statement()

    def _apply_fate(self, fate: Fate, death: Fate, loss: Fate) -> None:
        if fate is death:
            raise asyncio.CancelledError
        if fate is loss:
            self._is_lost = True
            raise asyncpg.ConnectionDoesNotExistError("the connection was lost")


class SteppedDatabase:
    """Stands in for the `Database` of server components."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._free: list[asyncpg.Connection] = []
        self._all: list[asyncpg.Connection] = []

    async def open(self, count: int) -> None:
        """Connect ahead of time, so that actors wait only at gates."""
        for _ in range(count):
            conn = await asyncpg.connect(
                self._dsn,
                server_settings={
                    "search_path": "duly",
                    "timezone": "UTC",
                    "jit": "off",
                    "deadlock_timeout": "30ms",
                    # A test makes thousands of commits, and its data need not be durable.
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
        self, connection_class: ConnectionClass = ConnectionClass.DUTY
    ) -> AsyncIterator[SteppedConnection]:
        real = self._free.pop()
        try:
            with translated_errors():
                yield SteppedConnection(real, CURRENT.get())
        finally:
            self._free.append(real)

    @asynccontextmanager
    async def transaction(
        self, connection_class: ConnectionClass = ConnectionClass.DUTY
    ) -> AsyncIterator[SteppedConnection]:
        async with self.connection(connection_class) as conn, conn.transaction():
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
    """Return the name of a statement in its file."""
    return NAMES.get(query, query.split("\n")[0][:50])
