"""What a database needs before a server can use it."""

import asyncpg
import pytest

from duly.errors import ConfigError
from duly.launch import database as launch
from duly.store import tenants
from duly.store.database import _prepare
from tests.conftest import drop_database, with_database

NOTHING: dict[str, str] = {}


@pytest.fixture
async def empty(postgres, request):
    """A database in which nothing has been done yet."""
    name = f"empty_{abs(hash(request.node.nodeid))}"
    admin = await asyncpg.connect(postgres)
    await admin.execute(f"create database {name}")
    yield with_database(postgres, name)
    await drop_database(postgres, name)
    await admin.close()


async def test_a_new_database_is_brought_up_to_date_once(empty):
    before = await launch.status(empty)
    assert (before.applied, bool(before.pending)) == ([], True)
    assert await launch.bring_up_to_date(empty) == before.pending
    assert await launch.bring_up_to_date(empty) == []
    after = await launch.status(empty)
    assert (after.applied, after.pending) == (before.pending, [])


async def test_the_key_of_the_administrator_is_made_once_and_kept_private(dsn, tmp_path):
    file = tmp_path / "admin.key"
    key = await launch.ensure_admin_key(dsn, file)
    assert file.read_text() == f"{key}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert await launch.ensure_admin_key(dsn, file) == key
    assert await launch.first_admin_key(dsn) is None


async def test_a_key_that_this_database_does_not_know_is_replaced(dsn, tmp_path):
    file = tmp_path / "admin.key"
    file.write_text("duly_of_another_database\n")
    key = await launch.ensure_admin_key(dsn, file)
    assert key.startswith("duly_") and file.read_text() == f"{key}\n"
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        await _prepare(conn)
        assert (await tenants.by_key(conn, key)).tenant == "default"
    finally:
        await conn.close()


def test_a_dsn_comes_from_the_flag_the_file_or_the_environment(tmp_path):
    file = tmp_path / "dsn"
    file.write_text("postgresql://file\n")
    there = {"DULY_DATABASE": "postgresql://environment"}
    assert launch.find_dsn("postgresql://flag", None, there) == "postgresql://flag"
    assert launch.find_dsn(None, file, there) == "postgresql://file"
    assert launch.find_dsn(None, None, there) == "postgresql://environment"
    assert launch.find_dsn(None, None, NOTHING) is None
    with pytest.raises(ConfigError, match="not both"):
        launch.find_dsn("postgresql://flag", file, NOTHING)
    with pytest.raises(ConfigError, match="Cannot read"):
        launch.find_dsn(None, tmp_path / "missing", NOTHING)


async def test_a_database_that_cannot_be_used_is_told(postgres):
    with pytest.raises(ConfigError, match="no_such_database"):
        await launch.status(postgres.replace("/duly?", "/no_such_database?"))
