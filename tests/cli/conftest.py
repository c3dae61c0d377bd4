"""A whole Duly for the tests that need one: `duly up`, as a user starts it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from duly.client.sync import Client
from tests.cli.preloaded import PreloadedCommands

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
    preloaded: PreloadedCommands | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return what the user's processes see; the rest is in the file that `duly up` wrote."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb"}

    def duly(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        if self.preloaded is not None and not options:
            return self.preloaded.run(*args)
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


class Up:
    """A `duly up` in a folder of its own, which may be killed and started again."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = settings
        self._port = "0"
        (folder / "home").mkdir()
        self.server = self.start()

    def start(self) -> Server:
        """Start it, and wait until it is ready; after the first time on the same port."""
        data, home, log = (self._folder / name for name in ("data", "home", "log"))
        env = {"PATH": os.environ["PATH"], "HOME": str(home), **QUICK, **self._settings}
        command = [DULY, "up", "--data", str(data), "--port", self._port, "--no-dashboard"]
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=out)
        url = _ready(self.process, log)
        self._port = url.rpartition(":")[2]
        return Server(url, data, home, (data / "admin.key").read_text().strip())

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        self.process.kill()
        self.process.communicate(timeout=60)

    def stop(self) -> None:
        """End it as a user does."""
        self.process.terminate()
        self.process.communicate(timeout=60)


def _ready(up: subprocess.Popen[bytes], log: Path) -> str:
    assert up.stdout is not None
    for line in up.stdout:
        if line.startswith(b"ready: "):
            return line.split()[1].decode()
    raise AssertionError(f"duly up ended before it was ready:\n{log.read_text()}")


def _folder(name: str, mode: int) -> Iterator[Path]:
    """Yield a folder that tasks, which run as other users, can reach."""
    folder = Path(tempfile.mkdtemp(prefix=f"duly-test-{name}-"))
    folder.chmod(mode)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """`duly up` on a free port, with a data folder and a home of its own."""
    for folder in _folder("up", 0o755):
        up = Up(folder)
        preloaded = PreloadedCommands(up.server.environment)
        yield replace(up.server, preloaded=preloaded)
        preloaded.stop()
        up.stop()


@pytest.fixture
def mortal_up() -> Iterator[Up]:
    """A `duly up` for one test, which may kill it."""
    for folder in _folder("up", 0o755):
        up = Up(folder, DULY_LEASES__HEARTBEAT="0.3s", DULY_LEASES__TTL="2s")
        yield up
        up.stop()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that tasks can write to."""
    yield from _folder("shared", 0o777)
