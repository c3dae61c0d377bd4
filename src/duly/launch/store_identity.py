"""Checks that all servers of a database use the same object store, and replaces a lost one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from duly.errors import ConfigError
from duly.launch import store_folder
from duly.launch.database import connection
from duly.model.object_store import StoreRecord
from duly.model.wording import either
from duly.policy.store_identity import StoreDecision, decide
from duly.server.artifacts.store_access import (
    STORE_ERRORS,
    first_line,
    folder_of,
    open_store,
)
from duly.server.artifacts.store_mark import NAME, read_mark, write_mark
from duly.store.database import Connection
from duly.store.fleet import object_store

STORE_TIMEOUT_SECONDS = 15
SERVER_TIMEOUT = timedelta(seconds=10)
"""A server without a heartbeat for this long no longer runs."""


async def check(dsn: str, store_url: str) -> UUID:
    """Return the id of the store; raises ConfigError if it is not the one of the database.

    The store of the first server is registered, and a missing folder created for that alone. The
    connection bypasses a pooler, because the lock needs a session.
    """
    async with connection(dsn) as conn, object_store.exclusively(conn):
        record, mark = await _read(conn, store_url)
        match decide(record, mark):
            case StoreDecision.REGISTER:
                store_folder.prepare(store_url)
                await _register(conn, store_url, record.id)
            case StoreDecision.REFUSE_UNMARKED:
                raise ConfigError(_unmarked(record, store_url))
            case StoreDecision.REFUSE_FOREIGN:
                raise ConfigError(_foreign(record, store_url))
            case StoreDecision.USE:
                store_folder.prepare(store_url)
                store_folder.check_owner(store_url, NAME)
        return record.id


async def replace(dsn: str, store_url: str, *, take_over: bool) -> bool:
    """Make an unmarked store, or with `take_over` any, the store of the database.

    Returns False if it is that already. The previous store is left as it is, and refused from now
    on, because the id is a new one. Raises ConfigError while servers run: they would keep writing
    to the previous one.
    """
    async with connection(dsn) as conn, object_store.exclusively(conn):
        record, mark = await _read(conn, store_url)
        if record.registered_by is not None and mark == record.id:
            return False
        if running := await object_store.live_servers(conn, silence=SERVER_TIMEOUT):
            run = "runs" if len(running) == 1 else "run"
            raise ConfigError(f"Stop all servers first. {either(running, 'and')} still {run}.")
        if mark is not None and mark != record.id and not take_over:
            raise ConfigError(
                f"{name_of(store_url)} is the object store of another database, which would lose "
                "it. If that database is gone, add --take-over."
            )
        store_folder.prepare(store_url)
        await _register(conn, store_url, uuid4())
        return True


def name_of(store_url: str) -> str:
    """Return the name of a store for messages, without anything in its URL that may be secret."""
    folder = folder_of(store_url)
    if folder is not None:
        return str(folder.absolute())
    parts = urlsplit(store_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def _read(conn: Connection, store_url: str) -> tuple[StoreRecord, UUID | None]:
    record = await object_store.read(conn)
    folder = folder_of(store_url)
    async with _naming_store(store_url):
        if folder is not None and not folder.exists():
            return record, None
        return record, await read_mark(open_store(store_url))


async def _register(conn: Connection, store_url: str, store: UUID) -> None:
    async with _naming_store(store_url):
        await write_mark(open_store(store_url), store)
    await object_store.register(conn, store, f"{name_of(store_url)} on {socket.gethostname()}")


@asynccontextmanager
async def _naming_store(store_url: str) -> AsyncIterator[None]:
    """Turn the errors of a store into one that names the store."""
    why: str
    try:
        async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
            yield
        return
    except TimeoutError:
        why = f"no response within {STORE_TIMEOUT_SECONDS} s"
    except ValueError:
        why = f"its {NAME} is damaged; restore it from a backup"
    except STORE_ERRORS as error:
        why = first_line(error)
    raise ConfigError(f"Cannot use the object store {name_of(store_url)}: {why}.")


def _unmarked(record: StoreRecord, store_url: str) -> str:
    name = name_of(store_url)
    return (
        f"{name} has no {NAME}, so it is not the object store of this database. That was "
        f"registered as {record.registered_by}. Is the folder mounted, or was the store not "
        "restored? All servers must use the same store: give --store a folder that they share, or "
        f"a bucket. To move the store, stop all servers and copy its files, {NAME} included. If it "
        f"is lost, run 'duly db use-store --store {name}' with your --database-file."
    )


def _foreign(record: StoreRecord, store_url: str) -> str:
    name = name_of(store_url)
    registered = record.registered_by
    hint = (
        f"This database's is {registered}."
        if registered
        else "Give --store a new folder or bucket."
    )
    return (
        f"{name} is the object store of another database, and two databases cannot share one. "
        f"{hint} If the other database is gone, run 'duly db use-store --take-over --store "
        f"{name}' with your --database-file."
    )
