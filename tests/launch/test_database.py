"""What a database needs before a server can use it."""

from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from benchmarks.cluster import as_superuser
from duly.config import DatabaseSettings
from duly.errors import ConfigError
from duly.launch import database as launch
from duly.model.tenant import Scope
from duly.store.accounts import audit_log, tenants
from duly.store.database import Database
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


@pytest.fixture
async def modest(postgres, request):
    """A database whose owner may neither make roles nor, there, schemas; and its administrator."""
    number = abs(hash(request.node.nodeid))
    name, role = f"modest_{number}", f"requests_{number}"
    administrator = await asyncpg.connect(as_superuser(postgres))
    await administrator.execute(f"create role {name} login password 'x'")
    await administrator.execute(f"create database {name}")
    inside = await asyncpg.connect(as_superuser(with_database(postgres, name)))
    await inside.execute(f"create schema duly authorization {name}")
    parts = urlsplit(with_database(postgres, name))
    yield urlunsplit(parts._replace(netloc=f"{name}:x@")), role, inside
    await inside.close()
    await administrator.execute(f"drop database {name} with (force)")
    await administrator.execute(f"drop role {name}")
    await administrator.execute(f"drop role if exists {role}")
    await administrator.close()


async def test_who_may_not_make_roles_is_told_what_to_have_run_and_then_works(modest):
    dsn, role, administrator = modest
    await launch.bring_up_to_date(dsn, role)
    with pytest.raises(ConfigError) as refused:
        await launch.check_request_role(dsn, role)
    statements = [line.strip() for line in str(refused.value).splitlines() if line.endswith(";")]
    assert [statement.split()[:2] for statement in statements] == [
        ["create", "role"],
        ["grant", role],
    ]
    for statement in statements:
        await administrator.execute(statement)
    with pytest.raises(ConfigError, match="Run 'duly db migrate'"):
        await launch.check_request_role(dsn, role)
    assert await launch.bring_up_to_date(dsn, role) == []
    await launch.check_request_role(dsn, role)
    await check_apart(dsn, role)


async def test_what_an_administrator_has_prepared_is_taken_as_it_is(modest):
    dsn, role, administrator = modest
    owner = urlsplit(dsn).username
    await administrator.execute(f"create role {role} nologin noinherit; grant {role} to {owner}")
    await launch.bring_up_to_date(dsn, role)
    await launch.check_request_role(dsn, role)
    await check_apart(dsn, role)


async def check_apart(dsn, role):
    """Make sure that requests are served as the role, and see their own tenant alone."""
    settings = DatabaseSettings(request_role=role)
    async with await Database.connect(dsn, settings) as database:
        async with database.connection() as conn:
            await conn.execute("insert into tenants (name, plan) values ('acme', 'free')")
        async with database.writing_for(1) as conn:
            assert await conn.fetchval("select current_user") == role
            assert await tenants.hold(conn, 1)
            assert await conn.fetchval("select array_agg(name) from tenants") == ["default"]
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.execute("update tenants set plan = 'unlimited'")


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
    assert len(await noted(dsn)) == 1


async def test_a_key_of_an_administrator_that_is_made_beside_the_api_is_in_the_audit_log(dsn):
    key = await launch.first_admin_key(dsn)
    (entry,) = await noted(dsn)
    assert (entry.actor, entry.action, entry.tenant) == ("database", "key.create", "default")
    assert "admin" in entry.details["scopes"]
    assert entry.target == key[: tenants.KEY_PREFIX_LENGTH]
    assert key not in str(entry)


async def noted(dsn):
    """Return what the audit log has."""
    async with await Database.connect(dsn) as database, database.connection() as conn:
        return await audit_log.read(conn)


async def test_a_stale_key_in_a_file_of_ours_is_replaced(dsn, tmp_path):
    file = tmp_path / "admin.key"
    file.write_text("duly_of_another_database\n")
    key = await launch.ensure_admin_key(dsn, file, replace_stale=True)
    assert key.startswith("duly_") and file.read_text() == f"{key}\n"
    async with launch.connection(dsn) as conn:
        assert (await tenants.by_key(conn, key)).tenant == "default"


async def test_a_key_that_cannot_be_written_is_not_created(dsn, tmp_path):
    with pytest.raises(ConfigError, match=r"No such file or directory\. No key was created"):
        await launch.ensure_admin_key(dsn, tmp_path / "missing" / "admin.key")
    async with launch.connection(dsn) as conn:
        assert not await tenants.has_admin_key(conn)
    assert await noted(dsn) == []


async def test_a_file_with_something_else_is_not_overwritten_with_a_key(dsn, tmp_path):
    file = tmp_path / "dsn"
    file.write_text(dsn)
    with pytest.raises(ConfigError, match="dsn exists and has no valid key of this database"):
        await launch.ensure_admin_key(dsn, file)
    assert file.read_text() == dsn
    assert await noted(dsn) == []


async def test_a_key_without_the_scope_admin_is_not_taken_for_the_administrators(dsn, tmp_path):
    file = tmp_path / "kim.key"
    async with launch.connection(dsn) as conn:
        file.write_text(await tenants.create_key(conn, "default", "kim", {Scope.READ}))
    with pytest.raises(ConfigError, match=r"the key of default/kim.*, which is not an adm"):
        await launch.ensure_admin_key(dsn, file)
    assert await noted(dsn) == []


def test_a_dsn_comes_from_the_flag_the_file_or_the_environment(tmp_path):
    file = tmp_path / "dsn"
    file.write_text("postgresql://file\n")
    there = {"DULY_DATABASE": "postgresql://environment"}
    assert launch.find_dsn("postgresql://flag", None, there) == "postgresql://flag"
    assert launch.find_dsn(None, file, there) == "postgresql://file"
    assert launch.find_dsn(None, None, there) == "postgresql://environment"
    assert launch.find_dsn(None, None, NOTHING) is None
    with pytest.raises(ConfigError, match="Give only one of --database"):
        launch.find_dsn("postgresql://flag", file, NOTHING)
    with pytest.raises(ConfigError, match="Cannot read"):
        launch.find_dsn(None, tmp_path / "missing", NOTHING)


async def test_a_database_that_cannot_be_used_is_told(postgres):
    with pytest.raises(ConfigError, match="no_such_database"):
        await launch.status(postgres.replace("/duly?", "/no_such_database?"))
