"""Fixtures of the fault tests: a lab, and PostgreSQL that may be killed."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from duly.store import migrate
from duly.store.embedded import EmbeddedPostgres
from tests.conftest import let_journals_tell_time
from tests.faults.lab import Lab


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the tasks' users can reach, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="duly-faults-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def lab(folder: Path, dsn: str) -> Iterator[Lab]:
    lab = Lab(folder, dsn)
    yield lab
    lab.close()


@pytest.fixture
def own_postgres(folder: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL for this test alone, migrated."""

    async def prepare(dsn: str) -> None:
        conn = await asyncpg.connect(dsn)
        await migrate.migrate(conn)
        await conn.close()
        await let_journals_tell_time(dsn)

    server = EmbeddedPostgres(folder / "postgres-data")
    (folder / "postgres-data").mkdir(mode=0o755)
    asyncio.run(prepare(server.start()))
    yield server
    server.stop()
