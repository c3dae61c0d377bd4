"""The processes of one PostgreSQL cluster, found and stopped.

A cluster outlives the `duly up` that started it when that one is killed, so nothing
here relies on being its parent. What is PostgreSQL's is known by the folder that all
its processes work in, never by a number in a file alone: numbers are used again.
"""

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from duly.clock import monotonic

PID_FILE = "postmaster.pid"
READY = "ready"


@dataclass(frozen=True, slots=True)
class PidFile:
    """What a running PostgreSQL has written about itself."""

    pid: int
    socket_folder: str
    status: str


def read_pid_file(data: Path) -> PidFile | None:
    """Return what is in the pid file; None when there is none, or none that can be read."""
    try:
        lines = (data / PID_FILE).read_text().splitlines()
        return PidFile(
            pid=int(lines[0]),
            socket_folder=lines[4] if len(lines) > 4 else "",
            status=lines[7].strip() if len(lines) > 7 else "",
        )
    except (OSError, ValueError, IndexError):
        return None


def find_postmaster(data: Path) -> int | None:
    """Return the pid of the live server of `data`, or None."""
    noted = read_pid_file(data)
    return noted.pid if noted and _works_in(noted.pid, data) else None


def await_ready(data: Path, pid: int, patience: float) -> bool:
    """Wait until the server `pid` says that it is ready; False if it ends, or never does."""
    deadline = monotonic() + patience
    while is_alive(pid) and monotonic() < deadline:
        noted = read_pid_file(data)
        if noted and (noted.pid, noted.status) == (pid, READY):
            return True
        time.sleep(0.01)
    return False


def is_alive(pid: int) -> bool:
    """Say whether there is such a process; one that only waits to be buried is not alive."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not _has_ended(handle, 0.0)
    finally:
        os.close(handle)


def find_processes(data: Path) -> list[int]:
    """Return every PostgreSQL process of `data`, also those whose server was killed."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]  # noqa: PTH208
    return [pid for pid in pids if _works_in(pid, data)]


def _works_in(pid: int, data: Path) -> bool:
    try:
        folder = os.stat(f"/proc/{pid}/cwd")  # noqa: PTH116 (a link into another process)
        here = data.stat()
        program = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    except OSError:
        return False
    same = (folder.st_dev, folder.st_ino) == (here.st_dev, here.st_ino)
    # An upgrade that replaced the program under a running server leaves " (deleted)" behind.
    return same and Path(program.removesuffix(" (deleted)")).name == "postgres"


def stop_postmaster(data: Path, *, patience: float) -> None:
    """Stop the server of `data`, first politely, and return when nothing of it is left.

    SIGINT ends the sessions and writes everything out. A server that has not managed in
    `patience` seconds is ended at once: its log makes up for that at the next start.
    """
    pid = find_postmaster(data)
    if pid is not None:
        for signum, wait in ((signal.SIGINT, patience), (signal.SIGQUIT, min(patience, 10.0))):
            if end(pid, signum, wait):
                break
    sweep(data)


def sweep(data: Path) -> None:
    """Kill what is left of a server, so that the next one finds its memory unused."""
    for pid in find_processes(data):
        end(pid, signal.SIGKILL, 10.0)


def end(pid: int, signum: signal.Signals, wait: float) -> bool:
    """Send a signal, and say whether the process was gone within `wait` seconds."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(handle, signum)
        return _has_ended(handle, wait)
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def _has_ended(handle: int, wait: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(wait * 1000))
