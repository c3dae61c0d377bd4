"""A whole Duly for the tests that need one: `duly up`, as a user starts it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from duly.client.sync import Client

DULY = str(Path(sys.executable).with_name("duly"))
QUICK = {
    "DULY_RETRIES__BASE_DELAY": "0.1s",
    "DULY_EXECUTION__GRACE": "2s",
    "DULY_SCHEDULING__UNPLACEABLE_AFTER": "0.5s",
}


@dataclass(frozen=True)
class Server:
    """Where it is, and a user with a home of its own who uses it."""

    url: str
    data: Path
    home: Path
    key: str = field(repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """Return what the user's processes see; the rest is in the file that `duly up` wrote."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb"}

    def duly(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [DULY, *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **{"env": self.environment, **options},
        )

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start a command, in the state in which a shell at a terminal does."""
        return subprocess.Popen(
            [DULY, *args],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_mind_interrupts,
        )

    def client(self) -> Client:
        """Return a client of its own."""
        return Client(self.url, self.key)


def _mind_interrupts() -> None:
    # A test run in the background ignores SIGINT, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """`duly up` on a free port, with a data folder and a home of its own."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-up-"))
    folder.chmod(0o755)
    home = folder / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **QUICK}
    command = [DULY, "up", "--data", str(folder / "data"), "--port", "0", "--no-dashboard"]
    with (folder / "log").open("wb") as log:
        up = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log)
    assert up.stdout is not None
    try:
        url = _ready(up, folder / "log")
        key = (folder / "data" / "admin.key").read_text().strip()
        yield Server(url, folder / "data", home, key)
    finally:
        up.terminate()
        up.communicate(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _ready(up: subprocess.Popen[bytes], log: Path) -> str:
    assert up.stdout is not None
    for line in up.stdout:
        if line.startswith(b"ready: "):
            return line.split()[1].decode()
    raise AssertionError(f"duly up ended before it was ready:\n{log.read_text()}")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that tasks, which run as other users, can write to."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-shared-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
