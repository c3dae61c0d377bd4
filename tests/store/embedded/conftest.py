"""A folder for a PostgreSQL, and one that runs there."""

import shutil
import tempfile
from pathlib import Path

import pytest

from duly.store.embedded.embedded_postgres import EmbeddedPostgres


@pytest.fixture
def tmp_path():
    """Not pytest's own, which every other run of pytest closes to all but root."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(tmp_path):
    """A folder whose cluster is gone after the test, whatever the test did to it."""
    folder = tmp_path / "data"
    yield folder
    EmbeddedPostgres(folder).stop()


@pytest.fixture
def postgres(folder):
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    yield postgres
    postgres.stop()
