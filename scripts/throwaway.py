"""Runs `duly up` in a temporary folder, and removes everything at the end.

It is started as a user would, on free ports, with a temporary home folder, so that the user's
configuration is neither read nor written.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

AGENT = re.compile(r" (-m )?duly\.\S*agent\S* | agent ")
READY = re.compile(r"^ready: (http://\S+)", re.MULTILINE)


class Throwaway:
    """A `duly up` for the duration of a `with` block, with the `url` and `key` to reach it."""

    def __init__(self, settings: dict[str, str], start_timeout: float = 60.0) -> None:
        self._settings = settings
        self._start_timeout = start_timeout
        self.url = ""
        self.key = ""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="duly-demo-"))
        # Tasks run as another user if we are root, and must reach the shared folder.
        self.folder.chmod(0o711)
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def output(self) -> str:
        """The output of `duly up` so far."""
        return (self.folder / "up.log").read_text(errors="replace")

    def await_output(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait until the output of `duly up` matches `pattern`, and return the match."""
        deadline = time.monotonic() + self._start_timeout
        while time.monotonic() < deadline:
            if match := pattern.search(self.output):
                return match
            if self._up.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"`duly up` did not print {pattern.pattern}:\n{self.output[-4000:]}")

    def kill_node(self) -> int:
        """Kill the agent and its descendants with SIGKILL; return the number of processes.

        All are stopped first, so that none can report the death of another.
        """
        agent = next(pid for pid in _children(self._up.pid) if AGENT.search(_command(pid)))
        processes = [agent, *_descendants(agent)]
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in processes:
                _signal(pid, signal_number)
        return len(processes)

    def _start(self) -> None:
        port = free_ports()
        data = self.folder / "data"
        command = [
            str(Path(sys.executable).with_name("duly")),
            *("up", "--data", str(data), "--host", "127.0.0.1", "--port", str(port)),
        ]
        with (self.folder / "up.log").open("wb") as log:
            # A separate session keeps Ctrl-C away from it; `_stop` ends it.
            self._up = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        self.url = self.await_output(READY)[1]
        self.key = (data / "admin.key").read_text().strip()

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DULY_", "XDG_", "PG"))
        }
        home = self.folder / "home"
        home.mkdir()
        return inherited | {"HOME": str(home)} | self._settings

    def _stop(self) -> None:
        """Stop `duly up`, by force if necessary, and remove the folder."""
        # A second Ctrl-C must not interrupt the clean-up, which is bounded in time.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._end()
        finally:
            signal.signal(signal.SIGINT, before)

    def _end(self) -> None:
        up = getattr(self, "_up", None)
        if up is not None:
            tree = [up.pid, *_descendants(up.pid)]
            up.terminate()
            try:
                up.wait(timeout=20)
            except subprocess.TimeoutExpired:
                for pid in {*tree, *_descendants(up.pid)}:
                    _signal(pid, signal.SIGKILL)
                up.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_ports() -> int:
    """Return a port that is free together with the next one.

    Below the ephemeral range, from which an outgoing connection could take one meanwhile.
    """
    for _ in range(100):
        port = 20_000 + 2 * secrets.randbelow(6_000)
        with contextlib.ExitStack() as sockets, contextlib.suppress(OSError):
            for candidate in (port, port + 1):
                sockets.enter_context(socket.socket()).bind(("127.0.0.1", candidate))
            return port
    raise RuntimeError("No two ports in a row are free.")


def _parents() -> dict[int, int]:
    """Return the parent of every process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command name may contain anything, even parentheses; only numbers follow the last.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return parents


def _children(pid: int) -> list[int]:
    return [child for child, parent in _parents().items() if parent == pid]


def _descendants(pid: int) -> list[int]:
    parents = _parents()
    tree = [pid]
    for process in tree:
        tree += [child for child, parent in parents.items() if parent == process]
    return tree[1:]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def _signal(pid: int, signal_number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)
