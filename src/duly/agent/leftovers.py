"""Removes what an earlier agent on the same folder left behind, before this one joins.

Joining ends the earlier incarnation, after which its attempts may run elsewhere; so
nothing of them may be running here by then.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from pathlib import Path

from duly.agent import environment, hierarchies, spares, workspace
from duly.agent.tree import read_environment, read_state, read_uid
from duly.agent.users import Users

log = logging.getLogger(__name__)

PATIENCE = 10.0
TIDYING = 1.0
"""Seconds that empty folders of ours may take, of which there may be thousands."""
READING = 1.0
"""Seconds for the environment of a process, which is read from its memory. Whoever maps a file
system of its own there can make us wait for ever."""


def sweep(mark: str, work: Path, spool: Path, users: Users) -> list[str]:
    """Kill every process of earlier attempts, and remove their cgroups, workspaces and logs.

    Returns empty folders that were kept for others, and for which there was no time.
    """
    hierarchies.sweep(mark)
    uids = {folder.lstat().st_uid for folder in _entries(work)}
    _kill(work, {uid for uid in uids if users.owns(uid)})
    left, deadline = [], time.monotonic() + TIDYING
    for folder in _entries(work):
        if time.monotonic() > deadline and spares.is_spare(folder):
            left.append(str(folder))
            continue
        with contextlib.suppress(OSError):
            workspace.remove(str(folder))
    for file in _entries(spool):
        file.unlink(missing_ok=True)
    return left


def _kill(work: Path, uids: set[int]) -> None:
    """Kill those that cgroups did not hold: by their environment, and by the user they run as."""
    deadline = time.monotonic() + PATIENCE
    while pids := _processes(work, uids, deadline):
        log.warning("killing what an earlier agent left", extra={"processes": len(pids)})
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            log.error("some processes cannot be killed", extra={"pids": pids})
            return
        time.sleep(0.01)


def _processes(work: Path, uids: set[int], deadline: float) -> list[int]:
    mark = environment.marker(str(work)).encode()
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    alive = [pid for pid in found if read_state(pid) is not None]
    ours = [pid for pid in alive if uids and read_uid(pid) in uids]
    return ours + _marked(mark, [pid for pid in alive if pid not in ours], deadline)


def _marked(mark: bytes, pids: list[int], deadline: float) -> list[int]:
    """Return which processes have `mark` in their environment, as far as that can be read.

    It is read in a thread, which is left behind with the process that makes it wait.
    """
    marked: list[int] = []
    while pids and time.monotonic() < deadline:
        read: list[bool] = []
        reader = threading.Thread(target=_look_for, args=(mark, pids, read), daemon=True)
        reader.start()
        count = -1
        while reader.is_alive() and len(read) > count:
            count = len(read)
            reader.join(READING)
        count = len(read)
        marked += [pid for pid, is_marked in zip(pids, read[:count], strict=False) if is_marked]
        if count < len(pids):
            log.warning("the environment of a process cannot be read", extra={"pid": pids[count]})
        pids = pids[count + 1 :]
    if pids:
        log.error("too many processes whose environment cannot be read; going on without them")
    return marked


def _look_for(mark: bytes, pids: list[int], read: list[bool]) -> None:
    for pid in pids:
        read.append(mark in read_environment(pid))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
