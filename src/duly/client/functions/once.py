"""Records effects in the application's own database and transaction, so that they happen once.

The record is a row of the table `duly_once`, made at first use. A second attempt at the same time
waits at the row until the first one's transaction ends; after its commit it finds the result,
after its rollback it runs the function. Nothing is committed here: the application commits, and
the effect and its record stand or fall together.
"""

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from duly.client.functions.arguments import encode_result
from duly.client.functions.stages import restore, result_converter
from duly.errors import Invalid

R = TypeVar("R")

CREATE_TABLE = """
create table if not exists duly_once (
    key         text primary key,
    result      text,
    recorded_at timestamp not null default current_timestamp
)
"""
FIND_TABLE = "select to_regclass('duly_once')"
LOCK_CREATION = "select pg_advisory_xact_lock(2074137612)"
"""Two transactions that create one table at once would fail in PostgreSQL."""
CLAIM = "insert into duly_once (key) values ({0}) on conflict (key) do nothing"
READ = "select result from duly_once where key = {0}"
RECORD = "update duly_once set result = {0} where key = {1}"
FORGET = "delete from duly_once where key = {0}"
PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


def run(connection: Any, key: str, function: Callable[[], R]) -> R:
    """Run `function` in the transaction of `connection` unless its result is recorded there."""
    driver = sys.modules[type(connection).__module__.partition(".")[0]]
    placeholder = PLACEHOLDERS.get(getattr(driver, "paramstyle", ""))
    if placeholder is None:
        raise Invalid(
            "connection",
            f"{driver.__name__} is not supported. Use psycopg or sqlite3; for asyncpg, once_async.",
        )
    _check_transaction(connection)
    converter = result_converter(function)
    cursor = connection.cursor()
    try:
        if driver.__name__ == "sqlite3":
            cursor.execute(CREATE_TABLE)
        else:
            cursor.execute(FIND_TABLE)
            if cursor.fetchone()[0] is None:
                cursor.execute(LOCK_CREATION)
                cursor.execute(CREATE_TABLE)
        cursor.execute(CLAIM.format(placeholder), (key,))
        if cursor.rowcount != 1:
            cursor.execute(READ.format(placeholder), (key,))
            return cast(R, restore(converter, cursor.fetchone()[0]))
        try:
            recorded = encode_result(converter, function()).decode()
        except BaseException:
            # The application may handle the error and commit. In PostgreSQL, a transaction that
            # has failed refuses this, and can only be rolled back.
            with suppress(Exception):
                cursor.execute(FORGET.format(placeholder), (key,))
            raise
        cursor.execute(RECORD.format(placeholder, placeholder), (recorded, key))
        return cast(R, restore(converter, recorded))
    finally:
        cursor.close()


async def run_async(connection: Any, key: str, function: Callable[[], Awaitable[R]]) -> R:
    """Do the same with a coroutine function and a connection of asyncpg."""
    if not hasattr(connection, "is_in_transaction"):
        raise Invalid("connection", "once_async takes a connection of asyncpg.")
    if not connection.is_in_transaction():
        raise _not_in_transaction()
    converter = result_converter(function)
    if await connection.fetchval(FIND_TABLE) is None:
        await connection.execute(LOCK_CREATION)
        await connection.execute(CREATE_TABLE)
    if await connection.execute(CLAIM.format("$1"), key) != "INSERT 0 1":
        return cast(R, restore(converter, await connection.fetchval(READ.format("$1"), key)))
    try:
        recorded = encode_result(converter, await function()).decode()
    except BaseException:
        with suppress(Exception):
            await connection.execute(FORGET.format("$1"), key)
        raise
    await connection.execute(RECORD.format("$1", "$2"), recorded, key)
    return cast(R, restore(converter, recorded))


def _check_transaction(connection: Any) -> None:
    """Refuse a connection whose statements commit themselves: the record would be made first."""
    if hasattr(connection, "isolation_level") and hasattr(connection, "in_transaction"):  # sqlite3
        is_transaction = connection.in_transaction or connection.isolation_level is not None
    else:
        status = getattr(getattr(connection, "info", None), "transaction_status", 0)
        is_transaction = int(status) != 0 or not getattr(connection, "autocommit", False)
    if not is_transaction:
        raise _not_in_transaction()


def _not_in_transaction() -> Invalid:
    return Invalid(
        "connection",
        "it is in autocommit mode and in no transaction. Begin one, so that the record is "
        "committed together with what the function writes.",
    )
