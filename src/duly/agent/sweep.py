"""Removes what an earlier agent on the same folder left behind, before this one joins.

Joining ends the earlier incarnation, after which its attempts may run elsewhere; so
nothing of them may be running here by then.
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from duly.agent import environment, hierarchies, spares, workspace
from duly.agent.tree import read_environment, read_state, read_uid
from duly.agent.users import Users

log = logging.getLogger(__name__)

PATIENCE = 10.0
TIDYING = 1.0
"""Seconds that empty folders of ours may take, of which there may be thousands."""


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
    while pids := list(_processes(work, uids)):
        log.warning("killing what an earlier agent left", extra={"processes": len(pids)})
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            log.error("some processes cannot be killed", extra={"pids": pids})
            return
        time.sleep(0.01)


def _processes(work: Path, uids: set[int]) -> Iterator[int]:
    mark = environment.marker(str(work)).encode()
    for pid in [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]:
        if read_state(pid) is not None and (
            (uids and read_uid(pid) in uids) or mark in read_environment(pid)
        ):
            yield pid


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
