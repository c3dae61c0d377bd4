"""The identity of the object store, which all servers of a database share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from duly.model.object_store import StoreRecord
from duly.store.database import Connection, load_statements

SQL = load_statements("object_store.sql")
ADVISORY_LOCK = 0x64756C7A
"""The advisory lock of the store's identity; the one before it is that of migrations."""


@asynccontextmanager
async def exclusively(conn: Connection) -> AsyncIterator[None]:
    """Hold the lock on the store's identity; `conn` must have a session of its own."""
    await conn.execute(SQL["lock"], ADVISORY_LOCK)
    try:
        yield
    finally:
        await conn.execute(SQL["unlock"], ADVISORY_LOCK)


async def read(conn: Connection) -> StoreRecord:
    """Return the identity of the object store."""
    row = await conn.fetchrow(SQL["read"])
    assert row is not None  # noqa: S101 (the schema inserts the row)
    return StoreRecord(row["id"], row["registered_by"])


async def register(conn: Connection, store: UUID, registered_by: str) -> None:
    """Record that the object store is the one with this id."""
    await conn.execute(SQL["register"], store, registered_by)


async def live_servers(conn: Connection, *, silence: timedelta) -> list[str]:
    """Return the names of the servers that sent a heartbeat within `silence`."""
    return [row["name"] for row in await conn.fetch(SQL["live_servers"], silence)]
