"""The connection to PostgreSQL: a pool, transactions, and named statements.

Every connection has a deadline for its statements and for idle transactions, so
that neither a lost peer nor a stopped process can hold a lock for long. A commit
counts only if PostgreSQL has nothing to remark about it. SQL lives in `sql/*.sql`,
each statement under a `-- name:` line.
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
from duly.store.codecs import set_codecs
from duly.store.confined import UNCONFINED, Confined, confinement
from duly.store.connecting import Connector, PatientConnection
from duly.store.lanes import Lane, Lanes
from duly.store.pooler import check_sessions

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
"""A connection, or one lent by the pool; a store function takes either."""

NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
PART = re.compile(r"^-- (_\w+)$", re.MULTILINE)
ACQUIRE = 10.0
"""Seconds to wait for a connection: two hosts may have to be asked."""
NOT_LEADING = "DU001"
"""SQLSTATE that our functions raise when the caller's term is over."""
QUOTAS_CHANGED = "DU002"
"""SQLSTATE that our functions raise when tenants were counted by what holds no more."""

CONNECTION_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that ended while nobody was using it
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,  # no room on its disk, or no more connections
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,  # it has become a standby
    asyncpg.TransactionRollbackError,  # a deadlock: the other one won, try again
    ConnectionError,
    TimeoutError,
    OSError,
)
"""What it looks like when PostgreSQL is away: the outcome of the statement is unknown."""


def load_statements(file: str) -> Mapping[str, str]:
    """Return the statements of `sql/<file>` by name.

    What begins with an underscore is a part of others, and stands in them where its name does.
    """
    text = resources.files("duly.store").joinpath("sql", file).read_text()
    found = NAME.split(text)
    parts = dict(zip(found[1::2], (body.strip() for body in found[2::2]), strict=True))
    return {
        name: PART.sub(lambda match: parts[match[1]], body)
        for name, body in parts.items()
        if not name.startswith("_")
    }


def array_text(ids: Iterable[int]) -> str:
    """Return ids as the text of an array: several arrays of any lengths can be sent only so."""
    return f"{{{','.join(map(str, ids))}}}"


def sparse(column: list[Any]) -> list[Any]:
    """Return nothing for a column of nothing, which would take as long to send as a full one."""
    return [] if column.count(None) == len(column) else column


class Unstorable(DulyError):
    """PostgreSQL refused the data itself; sending it again would not help."""

    code = "unstorable"


class Taken(Unstorable):
    """A value that must be unique is there already."""

    code = "taken"


class QuotasChanged(DulyError):
    """What tenants may have, or were given, has changed since it was counted; nothing was done."""

    code = "quotas_changed"


class Database:
    """A pool of connections to one PostgreSQL cluster."""

    def __init__(
        self, pool: "asyncpg.Pool[Any]", connector: Connector, lanes: Lanes, role: str
    ) -> None:
        self._pool = pool
        self._connector = connector
        self._lanes = lanes
        self._role = role
        self._ending: set[asyncio.Task[None]] = set()

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
                connection_class=PatientConnection,
                init=_prepare,
                reset=_keep,
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
        return cls(pool, connector, Lanes(settings.connections), settings.request_role)

    async def close(self) -> None:
        """Give back every connection, forcibly after a few seconds."""
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

    def connection(self, lane: Lane = Lane.DUTY, tenant_id: int | None = None) -> "Lent":
        """Lend a connection; each statement on it commits by itself.

        Nothing that was done on it counts before it has been given back without an error.
        `tenant_id` says whose share of the lane it takes, and confines nothing.
        """
        return Lent(self._pool, self._lanes, lane, tenant_id)

    @asynccontextmanager
    async def transaction(
        self, lane: Lane = Lane.DUTY, tenant_id: int | None = None
    ) -> AsyncIterator[Connection]:
        """Lend a connection inside a transaction (READ COMMITTED)."""
        async with self.connection(lane, tenant_id) as conn, conn.transaction():
            yield conn

    def reading_for(self, tenant_id: int) -> "Confined":
        """Lend a connection that can only read, and only the rows of one tenant."""
        begin = f"begin read only; {confinement(self._role, tenant_id)}"
        return Confined(self.connection(Lane.GUEST, tenant_id), begin, self._ending)

    @asynccontextmanager
    async def writing_for(self, tenant_id: int) -> AsyncIterator[Connection]:
        """Lend a connection inside a transaction that reaches only the rows of one tenant."""
        async with self.transaction(Lane.GUEST, tenant_id) as conn:
            await self.confine(conn, tenant_id)
            yield conn

    async def confine(self, conn: Connection, tenant_id: int) -> None:
        """Keep the rest of a transaction to the rows of one tenant."""
        await conn.execute(confinement(self._role, tenant_id))

    async def unconfine(self, conn: Connection) -> None:
        """Let the rest of a transaction reach the rows of every tenant again."""
        if self._role:
            await conn.execute(UNCONFINED)

    async def connect_apart(self, name: str) -> asyncpg.Connection:
        """Open a connection beside the pool, for the caller to keep and to close."""
        with translated():
            return await self._connector.connect(name=name)


class translated:  # noqa: N801 -- reads as a word: `with translated():`
    """Turns what PostgreSQL raises into errors that a caller can act on."""

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
            raise QuotasChanged("What tenants may have has changed meanwhile.") from error
        if isinstance(error, asyncpg.UniqueViolationError):
            raise Taken(str(error), index=error.constraint_name) from error
        if isinstance(error, asyncpg.DataError | asyncpg.IntegrityConstraintViolationError):
            raise Unstorable(str(error)) from error
        if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
            # What asyncpg raises for a value that it cannot even send.
            raise Unstorable(str(error)) from error
        if isinstance(error, CONNECTION_LOST):
            raise Unavailable(f"PostgreSQL cannot answer now: {_first_line(error)}") from error


class Lent:
    """A connection while it is lent; a class, for a generator each would cost more than a query.

    A commit is held for uncertain about which PostgreSQL warns. When somebody cancels its wait
    for the standby, PostgreSQL reports success with a warning: the row is there, and a failover
    may yet lose it.
    """

    __slots__ = ("_conn", "_lane", "_lanes", "_pool", "_tenant_id", "_warnings")

    def __init__(
        self, pool: "asyncpg.Pool[Any]", lanes: Lanes, lane: Lane, tenant_id: int | None
    ) -> None:
        self._pool = pool
        self._lanes = lanes
        self._lane = lane
        self._tenant_id = tenant_id
        self._warnings: list[str] = []

    async def __aenter__(self) -> Connection:
        await self._lanes.enter(self._lane, self._tenant_id)
        try:
            with translated():
                async with asyncio.timeout(ACQUIRE):
                    self._conn = await self._pool.acquire()
        except BaseException:
            self._lanes.leave(self._lane, self._tenant_id)
            raise
        self._conn.add_log_listener(self._hear)
        return self._conn

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with translated():
                await self._give_back(error)
                if error is not None:
                    raise error
        finally:
            self._lanes.leave(self._lane, self._tenant_id)

    async def _give_back(self, error: BaseException | None) -> None:
        """Give the connection back, or drop it when it is of no use any more."""
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self._conn.terminate()
        # A connection that is lost takes its listeners along, and must not hide why.
        with suppress(asyncpg.InterfaceError):
            self._conn.remove_log_listener(self._hear)
        await self._pool.release(self._conn)
        if error is None and self._warnings:
            raise Unavailable(f"PostgreSQL did not confirm the commit: {self._warnings[0]}")

    def _hear(self, _: Any, message: Any) -> None:
        if message.severity_en == "WARNING":
            self._warnings.append(message.message)


async def confirm(conn: Connection) -> None:
    """Make sure of everything that was committed before this, on the standby too.

    What one reads may have been committed by somebody whose wait for the standby was
    cancelled. A commit of our own, however small, comes after it in the log.
    """
    await conn.execute("select pg_logical_emit_message(true, 'duly', '')")


async def now(conn: Connection) -> datetime:
    """Read the clock that decides; call it after the locks are taken."""
    at: datetime = await conn.fetchval("select duly.now()")
    return at


def _first_line(error: BaseException) -> str:
    """Return what PostgreSQL said without its details; a timeout says nothing at all."""
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        # It was the driver that spoke, of how it is made.
        return "the connection was lost"
    return str(error).partition("\n")[0] or "it did not answer in time"


def _server_settings(settings: DatabaseSettings) -> dict[str, str]:
    milliseconds = int(settings.statement_timeout.total_seconds() * 1000)
    return {
        "application_name": "duly",
        "search_path": "duly",
        "timezone": "UTC",
        "statement_timeout": str(milliseconds),
        "idle_in_transaction_session_timeout": "2000",
        "client_connection_check_interval": "2000",
        # Short statements by the thousand: compiling them costs more than running them, and
        # each has one good plan, which goes by an index; a table that is empty for the moment
        # must not talk the planner into another one that is then kept.
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        # A bitmap scan never marks the entries of rows that are gone, so that the next one
        # would walk over all of them again, until a vacuum comes.
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }


async def _keep(conn: asyncpg.Connection) -> None:
    """Leave a connection as it is when it is given back: nothing here changes its session."""


async def _prepare(conn: asyncpg.Connection) -> None:
    await set_codecs(conn)
