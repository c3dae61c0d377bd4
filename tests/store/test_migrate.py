"""Migrations go forward, once, in order, and never by guess."""

import asyncio
from types import SimpleNamespace

import asyncpg
import pytest

from duly.errors import ConfigError, Unavailable
from duly.store import migrate
from tests.conftest import drop_database, with_database


@pytest.fixture
async def blank(postgres, tmp_path):
    """An empty database; the function opens connections to it."""
    name = f"blank_{tmp_path.name}".lower().replace("-", "_")[:60]
    admin = await asyncpg.connect(postgres)
    await admin.execute(f'create database "{name}"')
    opened = []

    async def connect():
        opened.append(await asyncpg.connect(with_database(postgres, name)))
        return opened[-1]

    yield connect
    for conn in opened:
        await conn.close()
    await drop_database(postgres, f'"{name}"')
    await admin.close()


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """A folder of migrations of the test's own."""
    folder = tmp_path / "migrations"
    folder.mkdir()
    monkeypatch.setattr(migrate, "resources", SimpleNamespace(files=lambda _: tmp_path))

    def write(**files):
        for name, text in files.items():
            (folder / f"{name.removeprefix('m')}.sql").write_text(text)

    return write


async def test_a_blank_database_is_brought_to_the_newest_schema(blank):
    conn = await blank()
    names = [migration.name for migration in migrate.migrations()]
    status = await migrate.status(conn)
    assert (status.applied, status.pending) == ([], names)
    assert await migrate.migrate(conn) == names
    status = await migrate.status(conn)
    assert (status.applied, status.pending) == (names, [])


async def test_migrating_again_does_nothing(blank, steps):
    steps(m0001_first="create table a (x int)")
    conn = await blank()
    assert await migrate.migrate(conn) == ["0001_first"]
    assert await migrate.migrate(conn) == []
    steps(m0002_second="alter table a add column y int")
    assert await migrate.migrate(conn) == ["0002_second"]


async def test_two_who_migrate_at_once_take_turns(blank, steps):
    steps(m0001_first="create table a (x int); select pg_sleep(0.2)")
    first, second = await blank(), await blank()
    done = await asyncio.gather(migrate.migrate(first), migrate.migrate(second))
    assert sorted(done) == [[], ["0001_first"]]


async def test_a_step_that_fails_leaves_nothing_of_itself(blank, steps):
    steps(m0001_first="create table a (x int)", m0002_bad="create table b (x int); select 1/0")
    conn = await blank()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate.migrate(conn)
    assert (await migrate.status(conn)).applied == ["0001_first"]
    assert await conn.fetchval("select to_regclass('duly.b')") is None
    steps(m0002_bad="create table b (x int)")
    assert await migrate.migrate(conn) == ["0002_bad"]


async def test_a_step_that_changed_after_it_was_applied_is_refused(blank, steps):
    steps(m0001_first="create table a (x int)")
    conn = await blank()
    await migrate.migrate(conn)
    steps(m0001_first="create table a (x bigint)")
    for ask in (migrate.migrate, migrate.status):
        with pytest.raises(ConfigError, match="0001_first is not the one that was applied"):
            await ask(conn)


async def test_a_database_from_the_future_is_refused(blank, steps, tmp_path):
    steps(m0001_first="create table a (x int)", m0002_second="create table b (x int)")
    conn = await blank()
    await migrate.migrate(conn)
    (tmp_path / "migrations" / "0002_second.sql").unlink()
    with pytest.raises(ConfigError, match="newer than this version of Duly"):
        await migrate.migrate(conn)


async def test_a_database_from_the_future_serves_those_whom_its_steps_leave_working(
    blank, steps, tmp_path
):
    steps(
        m0001_first="create table a (x int)",
        m0002_second="create table b (x int)",
        m0003_third="-- serves: 0002\n\ncreate table c (x int)",
        m0004_fourth="-- serves: 0002\n\ncreate table d (x int)",
    )
    conn = await blank()
    await migrate.migrate(conn)
    for name in ("0003_third", "0004_fourth"):
        (tmp_path / "migrations" / f"{name}.sql").unlink()
    assert await migrate.migrate(conn) == []
    assert (await migrate.status(conn)).pending == []
    (tmp_path / "migrations" / "0002_second.sql").unlink()
    with pytest.raises(ConfigError, match="migration 0002_second"):
        await migrate.status(conn)


async def test_a_list_that_an_older_version_made_is_understood(blank, steps):
    steps(m0001_first="create table a (x int)")
    conn = await blank()
    await migrate.migrate(conn)
    await conn.execute("alter table duly.migrations drop column serves")
    steps(m0002_second="create table b (x int)")
    assert (await migrate.status(conn)).pending == ["0002_second"]
    assert await migrate.migrate(conn) == ["0002_second"]


async def test_a_step_does_not_wait_long_for_a_table_that_is_in_use(blank, steps):
    steps(m0001_first="create table a (x int)")
    conn, other = await blank(), await blank()
    await migrate.migrate(conn)
    steps(m0002_second="alter table duly.a add column y int")
    async with other.transaction():
        await other.execute("select * from duly.a")
        with pytest.raises(Unavailable, match="nothing of it was applied"):
            await migrate.migrate(conn)
    assert await migrate.migrate(conn) == ["0002_second"]


def steps_that_stop_the_version_before():
    return [step.name for step in migrate.migrations()[1:] if step.serves == step.number]


def test_every_step_after_the_first_leaves_the_version_before_working():
    assert steps_that_stop_the_version_before() == []


def test_a_step_that_does_not_say_whom_it_serves_is_found(steps):
    steps(
        m0001_first="create table a (x int)",
        m0002_silent="create table b (x int)",
        m0003_third="-- serves: 0002\n\ncreate table c (x int)",
    )
    assert steps_that_stop_the_version_before() == ["0002_silent"]


@pytest.mark.parametrize("names", [["m0001_a", "m0003_b"], ["m0002_a"], ["m0001_a", "m0001_b"]])
def test_numbers_have_no_gaps(steps, names):
    steps(**dict.fromkeys(names, "select 1"))
    with pytest.raises(ConfigError, match="not numbered without gaps"):
        migrate.migrations()


async def test_the_lock_is_let_go_after_a_failure(blank, steps):
    steps(m0001_bad="select 1/0")
    first, second = await blank(), await blank()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate.migrate(first)
    steps(m0001_bad="select 1")
    async with asyncio.timeout(5):
        assert await migrate.migrate(second) == ["0001_bad"]


async def test_the_oldest_supported_postgresql_takes_the_schema(postgres_15):
    conn = await asyncpg.connect(with_database(postgres_15, "template_duly"))
    assert (await migrate.status(conn)).pending == []
    await conn.close()
