"""Detects the resources that this machine offers to tasks, unless its operator sets them."""

import os
import shutil
from pathlib import Path

from duly.agent.limits.cgroup_hierarchies import mounts
from duly.agent.preparation import workspace
from duly.model.resources import Resources

RESERVED_MEMORY_MB = 512
"""Left to the system and to Duly, or a quarter of the memory of a small machine."""
RESERVED_DISK_FRACTION = 0.1


def detect(data: Path, *, ports: int = 0) -> Resources:
    """Return the CPUs, memory and disk space that tasks may use here.

    The disk space is that of the smaller disk if workspaces cannot be in `data`: outputs, inputs
    and bundles are there in any case, and whoever chose a small disk for `data` meant it.
    """
    memory = _memory_mb()
    existing = _existing(data)
    work = workspace.root(existing, "any", shared=os.geteuid() == 0)
    free = min(shutil.disk_usage(folder).free for folder in (existing, _existing(work)))
    return Resources(
        cpu_milli=_cpu_milli(),
        memory_mb=max(memory - min(RESERVED_MEMORY_MB, memory // 4), 1),
        disk_mb=int(free * (1 - RESERVED_DISK_FRACTION)) // 2**20,
        ports=ports,
    )


def _existing(folder: Path) -> Path:
    """Return the folder, or its closest ancestor that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _cpu_milli() -> int:
    limits = [1000 * len(os.sched_getaffinity(0))]
    for mount in mounts():
        for folder in _upwards(mount.own, mount.root):
            if mount.version == 2:
                quota, _, period = _text(folder / "cpu.max").partition(" ")
            else:
                quota = _text(folder / "cpu.cfs_quota_us")
                period = _text(folder / "cpu.cfs_period_us")
            if quota.isdigit() and period.isdigit():
                limits.append(1000 * int(quota) // int(period))
    return max(min(limits), 1)


def _memory_mb() -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    limits = [page * os.sysconf("SC_PHYS_PAGES")]
    for mount in mounts():
        for folder in _upwards(mount.own, mount.root):
            for name in ("memory.max", "memory.limit_in_bytes"):
                limit = _text(folder / name)
                if limit.isdigit():
                    limits.append(int(limit))
    return min(limits) // 2**20


def _upwards(folder: Path, root: Path) -> list[Path]:
    """Return `folder` and its ancestors up to `root`: each of them may set a limit."""
    return [path for path in (folder, *folder.parents) if path.is_relative_to(root)]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
