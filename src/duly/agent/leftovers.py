"""Removes what an earlier agent on the same folder left behind, before this one joins.

Joining ends the earlier incarnation, after which its attempts may run elsewhere, so none of their
processes may be running here by then.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from pathlib import Path

from duly.agent.limits import cgroup_hierarchies
from duly.agent.preparation import environment, workspace, workspace_pool
from duly.agent.preparation.task_users import Users
from duly.agent.supervision.process_tree import read_environment, read_state, read_uid

log = logging.getLogger(__name__)

KILL_TIMEOUT_SECONDS = 10.0
MAX_REMOVAL_SECONDS = 1.0
"""Seconds for removing pooled empty folders, of which there may be thousands."""
READ_TIMEOUT_SECONDS = 1.0
"""Seconds for reading the environment of a process, which is in its memory. A process that maps a
file of its own file system (FUSE) there can block the read for ever."""


def sweep(instance: str, work: Path, spool: Path, users: Users) -> list[str]:
    """Kill every process of earlier attempts, and remove their cgroups, workspaces and logs.

    Returns the pooled empty folders that there was no time to remove.
    """
    cgroup_hierarchies.sweep(instance)
    uids = {folder.lstat().st_uid for folder in _entries(work)}
    _kill(work, {uid for uid in uids if users.owns(uid)})
    left, deadline = [], time.monotonic() + MAX_REMOVAL_SECONDS
    for folder in _entries(work):
        if time.monotonic() > deadline and workspace_pool.is_pooled(folder):
            left.append(str(folder))
            continue
        with contextlib.suppress(OSError):
            workspace.remove(str(folder))
    for file in _entries(spool):
        file.unlink(missing_ok=True)
    return left


def _kill(work: Path, uids: set[int]) -> None:
    """Kill processes outside of cgroups, found by their environment and by their user id."""
    deadline = time.monotonic() + KILL_TIMEOUT_SECONDS
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
    marker = environment.marker(str(work)).encode()
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    alive = [pid for pid in found if read_state(pid) is not None]
    ours = [pid for pid in alive if uids and read_uid(pid) in uids]
    return ours + _with_marker(marker, [pid for pid in alive if pid not in ours], deadline)


def _with_marker(marker: bytes, pids: list[int], deadline: float) -> list[int]:
    """Return the processes with `marker` in their environment, as far as that is readable.

    Environments are read in a thread, which is abandoned when a process blocks it.
    """
    marked: list[int] = []
    while pids and time.monotonic() < deadline:
        read: list[bool] = []
        reader = threading.Thread(
            target=_check_environments, args=(marker, pids, read), daemon=True
        )
        reader.start()
        count = -1
        while reader.is_alive() and len(read) > count:
            count = len(read)
            reader.join(READ_TIMEOUT_SECONDS)
        count = len(read)
        marked += [pid for pid, is_marked in zip(pids, read[:count], strict=False) if is_marked]
        if count < len(pids):
            log.warning("the environment of a process cannot be read", extra={"pid": pids[count]})
        pids = pids[count + 1 :]
    if pids:
        log.error("too many processes whose environment cannot be read; going on without them")
    return marked


def _check_environments(marker: bytes, pids: list[int], read: list[bool]) -> None:
    for pid in pids:
        read.append(marker in read_environment(pid))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
