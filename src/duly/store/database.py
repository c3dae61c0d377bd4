"""The connection pool, transactions, and the loader of named statements.

Every connection has a statement timeout and an idle-in-transaction timeout, so that neither a
lost peer nor a stopped process can hold a lock for long. A commit that PostgreSQL confirms with a
warning counts as failed. SQL lives in `sql/*.sql`, each statement under a `-- name:` line.

Decision: docs/adr/0007-pinned-query-plans.md.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from importlib import resources
from types import TracebackType
from typing import Any, Self

import asyncpg

from duly.config import DatabaseSettings
from duly.errors import ConfigError, DulyError, NotLeading, Unavailable
from duly.store.connections.codecs import set_codecs
from duly.store.connections.connecting import Connector, NoCancelConnection
from duly.store.connections.connection_classes import ConnectionClass, ConnectionClasses
from duly.store.connections.pooler import check_sessions
from duly.store.connections.tenant_scope import UNCONFINE_STATEMENT, TenantScope, confine_statements

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
"""A plain or a pooled connection; store functions take either."""

STATEMENT_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
FRAGMENT_REFERENCE = re.compile(r"^-- (_\w+)$", re.MULTILINE)
ACQUIRE_TIMEOUT_SECONDS = 10.0
"""Long enough for the connector to try two hosts."""
NOT_LEADING = "DU001"
"""SQLSTATE raised by our SQL functions when the caller's term is over."""
QUOTAS_CHANGED = "DU002"
"""SQLSTATE raised by our SQL functions when quotas changed after the caller counted usage."""

ERROR_NUMBER = re.compile(r"\[Errno \d+\] ")
CONNECTION_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the connection was closed while idle
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,  # the disk is full, or no connection slots are left
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,  # the host has become a standby
    asyncpg.TransactionRollbackError,  # deadlock victim: try again
    ConnectionError,
    TimeoutError,
    OSError,
)
"""Errors that mean PostgreSQL is unreachable and the outcome of the statement is unknown."""


def load_statements(file: str) -> Mapping[str, str]:
    """Return the statements of `sql/<file>` by name.

    A name with a leading underscore is a fragment: a line `-- _name` in a statement is replaced
    by its text.
    """
    text = resources.files("duly.store").joinpath("sql", file).read_text()
    sections = STATEMENT_NAME.split(text)
    bodies = dict(zip(sections[1::2], (body.strip() for body in sections[2::2]), strict=True))
    return {
        name: FRAGMENT_REFERENCE.sub(lambda match: bodies[match[1]], body)
        for name, body in bodies.items()
        if not name.startswith("_")
    }


def array_literal(ids: Iterable[int]) -> str:
    """Return ids as an array literal, for a parameter that holds arrays of different lengths."""
    return f"{{{','.join(map(str, ids))}}}"


def empty_if_all_none(column: list[Any]) -> list[Any]:
    """Return `column`, or an empty list if it is all None: encoding Nones costs as much as values.

    Statements treat an empty array as a column of nulls.
    """
    return [] if column.count(None) == len(column) else column


class Unstorable(DulyError):
    """PostgreSQL rejected the data itself; retrying would not help."""

    code = "unstorable"


class Taken(Unstorable):
    """A unique constraint was violated."""

    code = "taken"


class QuotasChanged(DulyError):
    """Tenants' limits or usage changed after they were counted; nothing was written."""

    code = "quotas_changed"


class Database:
    """A pool of connections to one PostgreSQL cluster."""

    def __init__(
        self, pool: "asyncpg.Pool[Any]", connector: Connector, classes: ConnectionClasses, role: str
    ) -> None:
        self._pool = pool
        self._connector = connector
        self._classes = classes
        self._role = role
        self._releasing: set[asyncio.Task[None]] = set()

    @classmethod
    async def connect(cls, dsn: str, settings: DatabaseSettings | None = None) -> Self:
        """Open a pool; raises ConfigError when the DSN cannot be used at all."""
        settings = settings or DatabaseSettings()
        try:
            wanted = _server_settings(settings)
            connector = Connector(dsn, wanted)
            pooled = Connector(dsn, wanted, pooler=settings.pooler)
            pool = await asyncpg.create_pool(
                min_size=1,
                max_size=settings.connections,
                connect=pooled.connect_for_pool,
                connection_class=NoCancelConnection,
                init=_initialize,
                reset=_skip_reset,
                max_inactive_connection_lifetime=300,
            )
            if settings.pooler:
                await check_sessions(pool, wanted)
        except (
            asyncpg.InvalidCatalogNameError,
            asyncpg.InvalidAuthorizationSpecificationError,
            asyncpg.ClientConfigurationError,
            ValueError,
        ) as error:
            raise ConfigError(f"Cannot use this database: {error}") from error
        except CONNECTION_LOST as error:
            raise Unavailable(f"PostgreSQL cannot answer now: {_first_line(error)}") from error
        return cls(pool, connector, ConnectionClasses(settings.connections), settings.request_role)

    async def close(self) -> None:
        """Close every connection, forcibly after a few seconds."""
        try:
            await asyncpg.compat.wait_for(self._pool.close(), 5)
        except TimeoutError:
            self._pool.terminate()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def connection(
        self,
        connection_class: ConnectionClass = ConnectionClass.DUTY,
        tenant_id: int | None = None,
    ) -> "BorrowedConnection":
        """Borrow a connection on which each statement commits by itself.

        Its commits are only certain once it has been released without an error. `tenant_id` is
        the tenant whose share of the connection class is used; it does not restrict access.
        """
        return BorrowedConnection(self._pool, self._classes, connection_class, tenant_id)

    @asynccontextmanager
    async def transaction(
        self,
        connection_class: ConnectionClass = ConnectionClass.DUTY,
        tenant_id: int | None = None,
    ) -> AsyncIterator[Connection]:
        """Borrow a connection inside a transaction (READ COMMITTED)."""
        async with self.connection(connection_class, tenant_id) as conn, conn.transaction():
            yield conn

    def reading_for(self, tenant_id: int) -> "TenantScope":
        """Borrow a read-only connection that sees only the rows of one tenant."""
        begin = f"begin read only; {confine_statements(self._role, tenant_id)}"
        borrowed = self.connection(ConnectionClass.CLIENT, tenant_id)
        return TenantScope(borrowed, begin, self._releasing)

    @asynccontextmanager
    async def writing_for(self, tenant_id: int) -> AsyncIterator[Connection]:
        """Borrow a connection inside a transaction that reaches only the rows of one tenant."""
        async with self.transaction(ConnectionClass.CLIENT, tenant_id) as conn:
            await self.confine(conn, tenant_id)
            yield conn

    async def confine(self, conn: Connection, tenant_id: int) -> None:
        """Restrict the rest of a transaction to the rows of one tenant."""
        await conn.execute(confine_statements(self._role, tenant_id))

    async def unconfine(self, conn: Connection) -> None:
        """Let the rest of a transaction reach the rows of every tenant again."""
        if self._role:
            await conn.execute(UNCONFINE_STATEMENT)

    async def connect_apart(self, name: str) -> asyncpg.Connection:
        """Open a connection outside the pool, which the caller owns and closes."""
        with translated_errors():
            return await self._connector.connect(name=name)


class translated_errors:  # noqa: N801 -- used as a function: `with translated_errors():`
    """Translates the driver's exceptions into errors that a caller can act on."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, DulyError):
            return
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate == NOT_LEADING:
            raise NotLeading("This server's term is over.") from error
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate == QUOTAS_CHANGED:
            raise QuotasChanged("Tenants' limits or usage have changed meanwhile.") from error
        if isinstance(error, asyncpg.UniqueViolationError):
            raise Taken(str(error), index=error.constraint_name) from error
        if isinstance(error, asyncpg.DataError | asyncpg.IntegrityConstraintViolationError):
            raise Unstorable(str(error)) from error
        if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
            # asyncpg could not encode the value.
            raise Unstorable(str(error)) from error
        if isinstance(error, CONNECTION_LOST):
            raise Unavailable(f"PostgreSQL cannot answer now: {_first_line(error)}") from error


class BorrowedConnection:
    """A connection on loan from the pool; a generator per loan would cost more than a query.

    A commit that comes with a warning counts as unconfirmed. When the wait for a synchronous
    standby is cancelled, PostgreSQL reports success with a warning: the row is there, but a
    failover may still lose it.
    """

    __slots__ = ("_class", "_classes", "_conn", "_pool", "_tenant_id", "_warnings")

    def __init__(
        self,
        pool: "asyncpg.Pool[Any]",
        classes: ConnectionClasses,
        connection_class: ConnectionClass,
        tenant_id: int | None,
    ) -> None:
        self._pool = pool
        self._classes = classes
        self._class = connection_class
        self._tenant_id = tenant_id
        self._warnings: list[str] = []

    async def __aenter__(self) -> Connection:
        await self._classes.acquire(self._class, self._tenant_id)
        try:
            with translated_errors():
                async with asyncio.timeout(ACQUIRE_TIMEOUT_SECONDS):
                    self._conn = await self._pool.acquire()
        except BaseException:
            self._classes.release(self._class, self._tenant_id)
            raise
        self._conn.add_log_listener(self._on_log_message)
        return self._conn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with translated_errors():
                await self._release(error)
                if error is not None:
                    raise error
        finally:
            self._classes.release(self._class, self._tenant_id)

    async def _release(self, error: BaseException | None) -> None:
        """Return the connection to the pool, or drop it if its host no longer takes writes."""
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self._conn.terminate()
        # A lost connection has lost its listeners, too; that error must not hide the first one.
        with suppress(asyncpg.InterfaceError):
            self._conn.remove_log_listener(self._on_log_message)
        await self._pool.release(self._conn)
        if error is None and self._warnings:
            raise Unavailable(f"PostgreSQL did not confirm the commit: {self._warnings[0]}")

    def _on_log_message(self, _: Any, message: Any) -> None:
        if message.severity_en == "WARNING":
            self._warnings.append(message.message)


async def confirm(conn: Connection) -> None:
    """Wait until everything committed before this call is durable on the standby, too.

    A row may be visible although its commit's wait for the standby was cancelled. A small commit
    of our own comes later in the WAL, so confirming it confirms the row.
    """
    await conn.execute("select pg_logical_emit_message(true, 'duly', '')")


async def now(conn: Connection) -> datetime:
    """Read the cluster's clock; call it after the locks are taken."""
    at: datetime = await conn.fetchval("select duly.now()")
    return at


def _first_line(error: BaseException) -> str:
    """Return an error's first line; a timeout has no text of its own."""
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        # The driver's own messages speak of its internals.
        return "the connection was lost"
    text = ERROR_NUMBER.sub("", str(error)).partition("\n")[0]
    return text[:1].lower() + text[1:] or "it did not answer in time"


def _server_settings(settings: DatabaseSettings) -> dict[str, str]:
    milliseconds = int(settings.statement_timeout.total_seconds() * 1000)
    return {
        "application_name": "duly",
        "search_path": "duly",
        "timezone": "UTC",
        "statement_timeout": str(milliseconds),
        "idle_in_transaction_session_timeout": "2000",
        "client_connection_check_interval": "2000",
        # The workload is short statements by the thousand: compiling costs more than running,
        # and each has one good plan, an index scan. A table that happens to be empty must not
        # make the planner cache a sequential scan.
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        # A bitmap scan does not mark dead index entries as killed, so every later scan would
        # visit them again until a vacuum.
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }


async def _skip_reset(conn: asyncpg.Connection) -> None:
    """Skip the reset of a released connection: nothing changes session state."""


async def _initialize(conn: asyncpg.Connection) -> None:
    await set_codecs(conn)
