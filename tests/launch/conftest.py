"""A folder that everybody on the machine can come to."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def open_folder():
    # Not in pytest's own folder, which is closed to all but its user.
    folder = Path(tempfile.mkdtemp(prefix="duly-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
