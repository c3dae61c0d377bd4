"""Measures how fast the machine starts isolated processes, without scheduling.

Each process gets its own cgroup, user, folder and pipe; afterwards its usage is read, and the
folder is checked and reclaimed. That is the cost of isolation alone. The remainder of what Duly
takes is scheduling, delivery and reporting.
"""

import os
import shutil
import tempfile
import uuid
from pathlib import Path

from benchmarks.limits import TRUE, on_two_processes, rate
from duly.agent.limits import cgroup_hierarchies
from duly.agent.limits.cgroup import Cgroup, Layout, Limits
from duly.agent.preparation.task_users import mapped_range
from duly.agent.preparation.workspace_pool import reclaim
from duly.agent.supervision.spawner import spawn

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
CGROUPS = 50
LIMITS = Limits(memory=16 * 2**20)
MAX_PROCESSES = 100


def isolated_rate(count: int) -> float | None:
    """Return how many isolated /bin/true per second two processes start and wait for.

    None means that isolation is not available on this machine, or to this user.
    """
    uid_range = mapped_range() if os.geteuid() == 0 else None
    name = f"duly-bench-{uuid.uuid4().hex}"
    layout = cgroup_hierarchies.find(name, limit_processes=False)
    folder = tempfile.mkdtemp(prefix="duly-bench-")
    try:
        if uid_range is None or not layout.folders:
            return None
        Path(folder).chmod(0o711)
        first_uid, _ = uid_range
        return rate(
            count,
            lambda: on_two_processes(
                lambda worker: _spawn_isolated(worker, count // 2, layout, folder, first_uid)
            ),
        )
    finally:
        cgroup_hierarchies.sweep(name)
        shutil.rmtree(folder)


def _spawn_isolated(worker: int, count: int, layout: Layout, folder: str, uid: int) -> None:
    cgroups = [
        Cgroup(layout, f"{worker}-{number}", LIMITS, MAX_PROCESSES) for number in range(CGROUPS)
    ]
    procs_files = [
        [os.open(f"{mount}/{cgroup.name}/cgroup.procs", os.O_WRONLY) for mount in layout.folders]
        for cgroup in cgroups
    ]
    workspace = f"{folder}/{worker}"
    Path(workspace).mkdir(mode=0o700)
    for number in range(count):
        slot = number % CGROUPS
        user = uid + 2 * number + worker
        _spawn_one(cgroups[slot], procs_files[slot], workspace, user)
    for mount in cgroup_hierarchies.mounts():
        (mount.root / "cgroup.procs").write_text("0")


def _spawn_one(cgroup: Cgroup, procs_files: list[int], workspace: str, uid: int) -> None:
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    for procs_file in procs_files:
        os.write(procs_file, b"0")
    os.chown(workspace, uid, uid)
    os.chdir(workspace)
    os.setresgid(uid, uid, 0)
    os.setresuid(uid, uid, 0)
    try:
        pid = spawn(TRUE, ["true"], ENV, write_end)
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
    os.close(write_end)
    _, status = os.waitpid(pid, 0)
    if status or os.read(read_end, 4096) or not reclaim(workspace, (uid, uid)):
        raise RuntimeError(f"{TRUE} ended with status {status}, or left files behind")
    os.close(read_end)
    cgroup.measure()
    cgroup.renew()
