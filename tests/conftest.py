"""Real parts for every test: one PostgreSQL for the run, one migrated database for each test."""

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
NAMES = itertools.count()
COPY = "template template_duly strategy file_copy"
"""Through the journal, which is the other way, it would be copied twice."""
# How long an example takes says nothing while others use the processors.
hypothesis.settings.register_profile(
    "shared processors",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("shared processors")
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


def pytest_configure(config: pytest.Config) -> None:
    """Choose where temporary files go, before anybody asks for one."""
    config.stash[FOLDER] = scratch.choose()
    # Whoever starts a process here starts many, which should not compile everything again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Undo what a shell does to commands in the background: they, and theirs, ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the run's files; after a failure they stay for a look until the next run."""
    folder = session.config.stash[FOLDER]
    if folder is not None and exitstatus == 0:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the files that mostly wait evenly among those that compute.

    There are more workers than cores: while some wait, others use what is left of a core.
    """
    # What kills and stops processes waits for them most of the time; the longest are at the end.
    waiting = [item for item in reversed(items) if item.get_closest_marker("faults")]
    computing = [item for item in items if not item.get_closest_marker("faults")]
    places: dict[Path, float] = {}
    for number, item in enumerate(waiting):
        # Ahead of the rest, so that no worker is left alone with a long one.
        places.setdefault(item.path, 0.8 * number / len(waiting) - 1 / len(items))
    for number, item in enumerate(computing):
        places.setdefault(item.path, number / len(computing))
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Look no more for rubbish among what was imported: that is a third of making an app."""
    gc.collect()
    gc.freeze()


def with_database(dsn: str, name: str) -> str:
    """Return `dsn` for another database of the same cluster."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))


async def _template(dsn: str) -> None:
    await _run(as_superuser(dsn), "alter role duly createdb")
    # The explorer does not wait a second for each deadlock that it brings about.
    await _run(as_superuser(dsn), "grant set on parameter deadlock_timeout to duly")
    await _run(as_superuser(dsn), "grant pg_checkpoint to duly")
    admin = await asyncpg.connect(dsn)
    await admin.execute("create database template_duly")
    await admin.close()
    await _migrate(with_database(dsn, "template_duly"))
    await let_journals_tell_time(with_database(dsn, "template_duly"))


async def _hurry(dsn: str) -> None:
    """Make it cheap to prove who one is, which a run does some thousand times."""
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
    """Drop a database, whoever is in it: autovacuum is there as the superuser."""
    await _run(as_superuser(dsn), f"drop database {name} with (force)")


async def let_journals_tell_time(dsn: str) -> None:
    """Let the journals of fault tests use the clock that all processes share, /proc/uptime."""
    await _run(
        as_superuser(dsn),
        "grant pg_read_server_files to duly; grant execute on function pg_read_file(text) to duly",
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL 18 for this run; its DSN."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-pg-"))
    server = EmbeddedPostgres(folder)
    folder.chmod(0o755)
    dsn = server.start()
    asyncio.run(_hurry(dsn))
    asyncio.run(_template(dsn))
    yield dsn
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[str]:
    """The oldest PostgreSQL that Duly supports, where Debian's binaries are present."""
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
def made_before() -> Iterator[Path]:
    """A data folder with a migrated PostgreSQL that is stopped; making one takes a second."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-made-"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "data")
    asyncio.run(_migrate(server.start()))
    server.stop()
    yield folder / "data"
    shutil.rmtree(folder, ignore_errors=True)


def plant(made: Path, folder: Path) -> None:
    """Begin a data folder with a PostgreSQL that was made before."""
    subprocess.run(["cp", "--archive", made, folder], check=True)


class Maker:
    """Makes and drops databases over one connection: to connect each time costs a fifth of it."""

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
    """Who makes the databases of this run."""
    maker = Maker(postgres)
    yield maker
    maker.close()


@pytest.fixture
def dsn(postgres: str, maker: Maker) -> Iterator[str]:
    """A fresh migrated database."""
    name = f"test_{os.getpid()}_{next(NAMES)}"
    maker.run(f"create database {name} owner duly {COPY}")
    yield with_database(postgres, name)
    maker.run(f"drop database {name} with (force)")


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    """A pool on a fresh migrated database."""
    database = await Database.connect(dsn)
    yield database
    await database.close()
