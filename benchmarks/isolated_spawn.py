"""Measures the limit of the machine with isolation but without scheduling.

A group, a user, a folder and a pipe of its own; afterwards what it has used is read, and the
folder is looked into and taken back. That is what isolation costs in itself: the rest of what
Duly takes is for knowing what is to run, and for telling how it ended.
"""

import os
import shutil
import tempfile
import uuid
from pathlib import Path

from benchmarks.limits import TRUE, on_two, rate
from duly.agent.limits import cgroup_hierarchies
from duly.agent.limits.cgroup import Cgroup, Layout
from duly.agent.preparation.task_users import mapped_range
from duly.agent.preparation.workspace_pool import reclaim
from duly.agent.supervision.spawner import spawn

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
GROUPS = 50
MEMORY = 16 * 2**20
PROCESSES = 100


def isolated_rate(count: int) -> float | None:
    """Return how often two processes start and await an isolated /bin/true in a second.

    None means that this machine, or who we are on it, cannot isolate anything.
    """
    base = mapped_range() if os.geteuid() == 0 else None
    name = f"duly-bench-{uuid.uuid4().hex}"
    layout = cgroup_hierarchies.find(name, limit_processes=False)
    folder = tempfile.mkdtemp(prefix="duly-bench-")
    try:
        if base is None or not layout.folders:
            return None
        Path(folder).chmod(0o711)
        first, _ = base
        return rate(
            count, lambda: on_two(lambda half: _run(half, count // 2, layout, folder, first))
        )
    finally:
        cgroup_hierarchies.sweep(name)
        shutil.rmtree(folder)


def _run(half: int, count: int, layout: Layout, folder: str, uid: int) -> None:
    groups = [Cgroup(layout, f"{half}-{one}", MEMORY, PROCESSES) for one in range(GROUPS)]
    doors = [
        [os.open(f"{one}/{group.name}/cgroup.procs", os.O_WRONLY) for one in layout.folders]
        for group in groups
    ]
    work = f"{folder}/{half}"
    Path(work).mkdir(mode=0o700)
    for number in range(count):
        place = number % GROUPS
        user = uid + 2 * number + half
        _run_one(groups[place], doors[place], work, user)
    for mount in cgroup_hierarchies.mounts():
        (mount.root / "cgroup.procs").write_text("0")


def _run_one(group: Cgroup, doors: list[int], work: str, uid: int) -> None:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    for door in doors:
        os.write(door, b"0")
    os.chown(work, uid, uid)
    os.chdir(work)
    os.setresgid(uid, uid, 0)
    os.setresuid(uid, uid, 0)
    try:
        pid = spawn(TRUE, ["true"], ENV, writing)
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
    os.close(writing)
    _, status = os.waitpid(pid, 0)
    if status or os.read(reading, 4096) or not reclaim(work, (uid, uid)):
        raise RuntimeError(f"{TRUE} ended with status {status}, or left something")
    os.close(reading)
    group.measure()
    group.renew()
