"""Finds and stops the processes of one PostgreSQL cluster.

A cluster outlives a killed `duly up`, so nothing here relies on being its parent process. Its
processes are recognised by their working directory, never by a pid file alone: pids are reused.
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
    """The fields of `postmaster.pid` that Duly reads."""

    pid: int
    socket_folder: str
    status: str


def read_pid_file(data: Path) -> PidFile | None:
    """Return the contents of the pid file; None if it is missing or unreadable."""
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


def wait_until_ready(data: Path, pid: int, patience: float) -> bool:
    """Wait until the server `pid` reports ready; False if it ends or `patience` seconds pass."""
    deadline = monotonic() + patience
    while is_alive(pid) and monotonic() < deadline:
        noted = read_pid_file(data)
        if noted and (noted.pid, noted.status) == (pid, READY):
            return True
        time.sleep(0.01)
    return False


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not _has_ended(handle, 0.0)
    finally:
        os.close(handle)


def find_processes(data: Path) -> list[int]:
    """Return every PostgreSQL process of `data`, including those whose postmaster was killed."""
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
    # After an upgrade that replaced the program of a running server, the link has this suffix.
    return same and Path(program.removesuffix(" (deleted)")).name == "postgres"


def stop_postmaster(data: Path, *, patience: float) -> None:
    """Stop the server of `data`, and return when none of its processes is left.

    SIGINT asks for a fast shutdown: it ends the sessions and flushes everything. After `patience`
    seconds, SIGQUIT stops the server immediately, and the next start recovers from the WAL.
    """
    pid = find_postmaster(data)
    if pid is not None:
        for signum, wait in ((signal.SIGINT, patience), (signal.SIGQUIT, min(patience, 10.0))):
            if signal_and_wait(pid, signum, wait):
                break
    kill_leftovers(data)


def kill_leftovers(data: Path) -> None:
    """Kill what is left of a server, so that its shared memory is free for the next one."""
    for pid in find_processes(data):
        signal_and_wait(pid, signal.SIGKILL, 10.0)


def signal_and_wait(pid: int, signum: signal.Signals, wait: float) -> bool:
    """Send a signal, and return whether the process ended within `wait` seconds."""
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
