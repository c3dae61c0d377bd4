"""Fixtures for all tests: a PostgreSQL per run, and a migrated database per test."""

import asyncio
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import hypothesis
import pytest

from benchmarks.cluster import as_superuser
from duly.store import migrate
from duly.store.database import Database
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests import scratch

FOLDER = pytest.StashKey[Path | None]()
DATABASE_NUMBERS = itertools.count()
COPY = "template template_duly strategy file_copy"
"""The default strategy, wal_log, would write every page twice."""
# How long an example takes says nothing while others use the processors.
hypothesis.settings.register_profile(
    "shared processors",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("shared processors")
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder for temporary files before any is created."""
    config.stash[FOLDER] = scratch.choose()
    # Tests start many Python processes, which should not compile every module again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell makes background commands, and so all their children, ignore SIGINT; undo that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the files of the run; after a failure they are kept until the next run."""
    folder = session.config.stash[FOLDER]
    if folder is not None and exitstatus == 0:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the test files that mostly wait evenly among those that compute.

    There are more workers than cores, so that cores stay busy while some workers wait.
    """
    # Fault tests spend most of their time waiting for processes; the longest are last.
    waiting = [item for item in reversed(items) if item.get_closest_marker("faults")]
    computing = [item for item in items if not item.get_closest_marker("faults")]
    positions: dict[Path, float] = {}
    for number, item in enumerate(waiting):
        # Within the first four fifths, so that no long file is started at the very end.
        positions.setdefault(item.path, 0.8 * number / len(waiting) - 1 / len(items))
    for number, item in enumerate(computing):
        positions.setdefault(item.path, number / len(computing))
    items.sort(key=lambda item: positions[item.path])


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection, a third of the time to build an app."""
    gc.collect()
    gc.freeze()


def with_database(dsn: str, name: str) -> str:
    """Return `dsn` for another database of the same cluster."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))


async def _template(dsn: str) -> None:
    await _run(as_superuser(dsn), "alter role duly createdb")
    # The explorer of interleavings lowers it, because it provokes deadlocks.
    await _run(as_superuser(dsn), "grant set on parameter deadlock_timeout to duly")
    await _run(as_superuser(dsn), "grant pg_checkpoint to duly")
    admin = await asyncpg.connect(dsn)
    await admin.execute("create database template_duly")
    await admin.close()
    await _migrate(with_database(dsn, "template_duly"))
    await allow_reading_uptime(with_database(dsn, "template_duly"))


async def _speed_up_logins(dsn: str) -> None:
    """Lower the cost of password authentication, which happens some thousand times per run."""
    superuser = as_superuser(dsn)
    for role in map(urlsplit, (dsn, superuser)):
        change = f"alter role {role.username} password '{role.password}'"
        await _run(superuser, f"set scram_iterations = 1; {change}")


async def _migrate(dsn: str) -> None:
    conn = await asyncpg.connect(dsn)
    await migrate.migrate(conn)
    await conn.close()


async def _run(dsn: str, statement: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


async def drop_database(dsn: str, name: str) -> None:
    """Drop a database and its sessions; only a superuser can end those of autovacuum."""
    await _run(as_superuser(dsn), f"drop database {name} with (force)")


async def allow_reading_uptime(dsn: str) -> None:
    """Let the journals of fault tests read /proc/uptime, the clock that all processes share."""
    await _run(
        as_superuser(dsn),
        "grant pg_read_server_files to duly; grant execute on function pg_read_file(text) to duly",
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of a PostgreSQL 18 for this run."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-pg-"))
    server = EmbeddedPostgres(folder)
    folder.chmod(0o755)
    dsn = server.start()
    asyncio.run(_speed_up_logins(dsn))
    asyncio.run(_template(dsn))
    yield dsn
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[str]:
    """The DSN of the oldest supported PostgreSQL, if Debian's package of it is installed."""
    if not DEBIAN_15.is_dir():
        pytest.skip("PostgreSQL 15 is not installed here")
    folder = Path(tempfile.mkdtemp(prefix="duly-test-pg15-"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder, DEBIAN_15)
    dsn = server.start()
    asyncio.run(_template(dsn))
    yield dsn
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def data_template() -> Iterator[Path]:
    """A data folder with a migrated, stopped PostgreSQL; creating one takes a second."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-data-"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "data")
    asyncio.run(_migrate(server.start()))
    server.stop()
    yield folder / "data"
    shutil.rmtree(folder, ignore_errors=True)


def copy_data(template: Path, folder: Path) -> None:
    """Create a data folder as a copy of `data_template`."""
    subprocess.run(["cp", "--archive", template, folder], check=True)


class Maker:
    """Creates and drops databases over one connection, which saves a fifth of the time."""

    def __init__(self, dsn: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._conn = self._loop.run_until_complete(asyncpg.connect(as_superuser(dsn)))

    def run(self, statement: str) -> None:
        self._loop.run_until_complete(self._conn.execute(statement))

    def close(self) -> None:
        self._loop.run_until_complete(self._conn.close())
        self._loop.close()


@pytest.fixture(scope="session")
def maker(postgres: str) -> Iterator[Maker]:
    """Creates the databases of this run."""
    maker = Maker(postgres)
    yield maker
    maker.close()


@pytest.fixture
def dsn(postgres: str, maker: Maker) -> Iterator[str]:
    """The DSN of a fresh, migrated database."""
    name = f"test_{os.getpid()}_{next(DATABASE_NUMBERS)}"
    maker.run(f"create database {name} owner duly {COPY}")
    yield with_database(postgres, name)
    maker.run(f"drop database {name} with (force)")


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    """A pool of connections to a fresh, migrated database."""
    database = await Database.connect(dsn)
    yield database
    await database.close()
