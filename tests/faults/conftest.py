"""Fixtures of the fault tests: a lab, and a PostgreSQL that may be killed."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests.conftest import allow_reading_uptime, copy_data
from tests.faults.lab import Lab


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the users of tasks can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="duly-faults-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def lab(folder: Path, dsn: str) -> Iterator[Lab]:
    lab = Lab(folder, dsn)
    yield lab
    lab.close()


@pytest.fixture
def own_postgres(folder: Path, data_template: Path) -> Iterator[EmbeddedPostgres]:
    """A migrated PostgreSQL for one test."""
    data = folder / "postgres-data"
    copy_data(data_template, data)
    data.chmod(0o755)
    server = EmbeddedPostgres(data)
    asyncio.run(allow_reading_uptime(server.start()))
    yield server
    server.stop()
