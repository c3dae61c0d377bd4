"""Describes the machine and the commit that results belong to."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks import cluster
from benchmarks.cluster import Cluster
from duly.agent.limits import cgroup_hierarchies

ROOT = Path(__file__).parents[1]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, the versions, and the time of a run."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    postgresql: str
    fsync: str
    commit: str
    at: str

    def __str__(self) -> str:
        return (
            f"{self.cores} cores of {self.cpu}, {self.memory_gib:.0f} GiB, {self.system}, "
            f"Python {self.python}, PostgreSQL {self.postgresql} (fsync {self.fsync}), "
            f"commit {self.commit}, {self.at}"
        )


def describe(postgres: Cluster) -> Machine:
    """Return the description of this machine and this commit."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory / 2**30, 1),
        system=_system(),
        python=platform.python_version(),
        postgresql=cluster.value(postgres.dsn, "show server_version").split()[0],
        fsync=cluster.value(postgres.dsn, "show fsync"),
        commit=commit(),
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _system() -> str:
    is_quick = any(mount.is_quick_to_join for mount in cgroup_hierarchies.mounts())
    return f"{platform.system()} {platform.release()}{' with favordynmods' if is_quick else ''}"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    """Return the measured commit, and whether there are uncommitted changes."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "--short", "HEAD")
    return f"{head or 'unknown'}{' with changes' if git('status', '--porcelain') else ''}"
