"""A real `duly up` for tests: started as a user would, on free ports, with a home of its own."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from duly.client.sync import Client
from duly.store.embedded import postmaster
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests import stale_cgroups

DULY = str(Path(sys.executable).with_name("duly"))
T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = 30) -> T:
    """Look until something is found that lives in another process."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return value


class Machine:
    """A folder for data, a home, and every `duly up` that was started on them."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.home = folder / "home"
        self.home.mkdir()
        self.mark = f"DULY_TEST_MARK={uuid.uuid4()}"
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DULY_", "XDG_", "PG"))},
            **dict([self.mark.split("=")]),
            "HOME": str(self.home),
            "DULY_EXECUTION__GRACE": "2s",
            "DULY_RETRIES__BASE_DELAY": "0.1s",
        }
        self.ups: list[Up] = []

    def up(
        self,
        *flags: str,
        port: int = 0,
        env: dict[str, str] | None = None,
        stdout: int = subprocess.PIPE,
    ) -> "Up":
        """Start it, and return at once."""
        arguments = ["up", "--data", str(self.data), "--port", str(port), *flags]
        self.ups.append(Up(self, arguments, {**self.env, **(env or {})}, stdout))
        return self.ups[-1]

    def duly(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        """Run a command to its end, and return what it printed."""
        done = subprocess.run(
            [DULY, *arguments], env={**self.env, **(env or {})}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def key(self) -> str:
        return (self.data / "admin.key").read_text().strip()

    @property
    def link(self) -> str:
        return (self.data / "pages.link").read_text().strip()

    def processes(self) -> list[int]:
        """Return everything that any `duly up` on this folder has started and that still runs."""
        ours = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and self.mark.encode() in _read(entry / "environ")
        ]
        return ours + postmaster.find_processes(self.data / "postgres")

    def close(self) -> None:
        for up in self.ups:
            up.close()
        EmbeddedPostgres(self.data).stop()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        stale_cgroups.remove([self.data / "agent"])


class Up:
    """One `duly up`."""

    def __init__(
        self, machine: Machine, arguments: list[str], env: dict[str, str], stdout: int
    ) -> None:
        self.machine = machine
        self.errors = machine.home.with_name(f"errors-{len(machine.ups)}")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [DULY, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=errors,
                env=env,
                text=True,
                start_new_session=True,
            )
        self.said: list[str] = []
        self.url = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches; fail if it ends before."""
        while line := self.process.stdout.readline():
            self.said.append(line)
            if matched := re.search(pattern, line):
                return matched
        raise AssertionError(f"never said {pattern!r}: {self.said}\n{self.warnings}")

    def ready(self) -> "Up":
        self.url = self.wait_for(r"^ready: (http://\S+)$")[1]
        return self

    def client(self) -> Client:
        return Client(self.url, self.machine.key)

    @property
    def warnings(self) -> str:
        return self.errors.read_text()

    def child(self, word: str) -> int:
        """Return the part whose command line has `word` in it."""
        listing = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        children = [int(pid) for pid in Path(listing).read_text().split()]
        return next(p for p in children if word.encode() in _read(Path(f"/proc/{p}/cmdline")))

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
