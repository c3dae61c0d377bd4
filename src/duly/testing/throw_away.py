"""Starts a whole Duly for a test, with a worker, and removes it afterwards."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from duly.errors import ConfigError

STOP_SECONDS = 60.0
RUN = "from duly.cli.entry import main; main()"
SETTINGS = {"DULY_RETRIES__BASE_DELAY": "0.1s", "DULY_EXECUTION__GRACE": "2s"}
"""Tests have no time for the usual delays; environment variables of the test override them."""


@dataclass(frozen=True)
class Server:
    """Where a throw-away Duly is, and the key of its administrator."""

    url: str
    key: str = field(repr=False)
    log: Path
    """What its processes have written."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables with which clients and workers find it."""
        return {"DULY_URL": self.url, "DULY_KEY": self.key}


@contextmanager
def server(app: str | None = None, *, processes: int = 1) -> Iterator[Server]:
    """Run a Duly of its own during the block, and a worker for `app`, such as "shop.tasks:app".

    Clients that are made in the block without a URL use it. It takes a few seconds to start,
    leaves nothing behind, and needs `pip install 'duly[server]'`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-testing-")))
        folder.chmod(0o755)  # tasks may run as other users
        (folder / "home").mkdir()
        log = folder / "log"
        environment = {
            **SETTINGS,
            **{name: value for name, value in os.environ.items() if name != "DULY_KEY"},
            "HOME": str(folder / "home"),
        }
        data = folder / "data"
        command = ["up", "--data", str(data), "--port", "0", "--no-dashboard"]
        ready = stack.enter_context(_started(command, environment, log))
        key = (data / "admin.key").read_text(encoding="utf-8").strip()
        running = Server(ready.split()[1], key, log)
        stack.enter_context(_variables(running.environment))
        if app is not None:
            command = ["worker", app, "--processes", str(processes)]
            command += ["--data", str(folder / "worker")]
            environment = {**environment, **running.environment}
            stack.enter_context(_started(command, environment, log))
        yield running


@contextmanager
def _started(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[str]:
    """Run a command of Duly during the block; yield the line with which it says it is ready."""
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", RUN, *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            text=True,
        )
    try:
        yield _ready_line(process, log)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _ready_line(process: "subprocess.Popen[str]", log: Path) -> str:
    assert process.stdout is not None  # noqa: S101 - for the type checker
    for line in process.stdout:
        if line.startswith("ready: "):
            return line
    written = log.read_text(encoding="utf-8", errors="replace")
    raise ConfigError(f"duly ended before it was ready:\n{written[-4000:]}")


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
