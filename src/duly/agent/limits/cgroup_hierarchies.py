"""Detects the cgroup hierarchies of this machine, and which of them this agent may use.

Each is probed by making the agent's own folder in it: permissions, mount options and delegation
decide together, and only the kernel knows all of them.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from duly.agent.limits.cgroup import Layout, cpu_shares, cpu_weight

log = logging.getLogger(__name__)

V1_CONTROLLERS = ("freezer", "memory", "pids", "cpu")
V2_CONTROLLERS = ("memory", "pids", "cpu")
SWEEP_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for killed processes to disappear before giving up on them."""


class Mount(NamedTuple):
    """A mounted hierarchy, and the cgroup in it that this process belongs to."""

    root: Path
    version: int
    controllers: frozenset[str]
    own: Path
    is_quick_to_join: bool
    """Whether it is mounted with favordynmods: without it, a first move takes long."""


def mounts() -> list[Mount]:
    """Return the cgroup mounts that this process can see."""
    paths = dict(_own_paths())
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount_point, mount_root = before.split()[4], before.split()[3]
        kind, _, given = after.split()[:3]
        if kind not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind == "cgroup2" else 1
        options = frozenset(given.split(","))
        names = frozenset() if version == 2 else options
        path = next(
            (p for keys, p in paths.items() if keys <= names and bool(keys) == bool(names)), "/"
        )
        # Inside a container the mount shows only a part of the tree.
        inside = path.removeprefix(mount_root if mount_root != "/" else "").lstrip("/")
        own = Path(mount_point, inside)
        if not own.is_dir():
            own = Path(mount_point)
        found.append(Mount(Path(mount_point), version, names, own, "favordynmods" in options))
    return found


def _own_paths() -> Iterator[tuple[frozenset[str], str]]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        yield frozenset(filter(None, names.split(","))), path


def find(name: str, *, limit_processes: bool = True) -> Layout:
    """Make the folder `name` in every usable hierarchy, and return the layout.

    `limit_processes` is not needed where every attempt has its own user, whose processes are
    limited already. A layout without folders means that no cgroups are available here.
    """
    unified: str | None = None
    controllers: tuple[str, ...] = ()
    version1: dict[str, str] = {}
    for mount in mounts():
        if mount.version == 2:
            unified, controllers = _make_unified(mount, name)
        for controller in V1_CONTROLLERS:
            if controller in mount.controllers:
                folder = _make(mount.own, name) or _make(mount.root, name)
                if folder:
                    version1[controller] = str(folder)
    if unified and "freezer" in version1:
        # The unified hierarchy freezes and kills by itself: one hierarchy less to join.
        _remove(Path(version1.pop("freezer")))
    if not limit_processes and "pids" in version1:
        _remove(Path(version1.pop("pids")))
    layout = Layout(unified=unified, controllers=controllers, **version1)
    _set_total_weight(layout)
    return layout


def _set_total_weight(layout: Layout) -> None:
    """Give all tasks together the weight of all CPUs of the machine.

    Otherwise they would share the weight of one CPU whenever anything else is busy.
    """
    cpu_milli = 1000 * (os.cpu_count() or 1)
    with contextlib.suppress(OSError):
        if layout.cpu is not None:
            Path(layout.cpu, "cpu.shares").write_text(str(cpu_shares(cpu_milli)))
        elif "cpu" in layout.controllers:
            Path(layout.unified or "", "cpu.weight").write_text(str(cpu_weight(cpu_milli)))


def _make_unified(mount: Mount, name: str) -> tuple[str | None, tuple[str, ...]]:
    """Make the folder below the agent's cgroup or the root, whichever has more controllers."""
    best: tuple[str | None, tuple[str, ...]] = (None, ())
    for parent in dict.fromkeys((mount.own, mount.root)):
        folder = _make(parent, name)
        if folder is None or not (folder / "cgroup.freeze").exists():
            continue
        controllers = tuple(c for c in V2_CONTROLLERS if _enable(parent, c) and _enable(folder, c))
        if best[0] is None or len(controllers) > len(best[1]):
            if best[0] is not None:
                _remove(Path(best[0]))
            best = (str(folder), controllers)
        else:
            _remove(folder)
    return best


def _make(parent: Path, name: str) -> Path | None:
    folder = parent / name
    try:
        if not folder.exists():
            folder.mkdir()
            # Tasks read their own limits in there.
            folder.chmod(0o755)
        probe = folder / "probe"
        probe.mkdir(exist_ok=True)
        writable = os.access(probe / "cgroup.procs", os.W_OK)
        probe.rmdir()
    except OSError:
        return None
    # Moving a process needs write access to both its source and its destination cgroup.
    return folder if writable and os.access(parent / "cgroup.procs", os.W_OK) else None


def _enable(folder: Path, controller: str) -> bool:
    try:
        if controller in (folder / "cgroup.subtree_control").read_text().split():
            return True
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return False
    return True


def sweep(name: str) -> None:
    """Kill the processes left in every folder `name` in any hierarchy, and remove the folder."""
    for mount in mounts():
        for folder in list(_find(str(mount.root), name)):
            _empty(folder)
            for path, _, _ in os.walk(folder, topdown=False):
                _remove(Path(path))


def _find(root: str, name: str) -> Iterator[Path]:
    """Yield every folder `name` below `root`.

    A machine may have ten thousand cgroups. Most have no children, as their link count shows, and
    are skipped: the search takes 0.1 s instead of 0.6.
    """
    pending = [root]
    while pending:
        with contextlib.suppress(FileNotFoundError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if entry.name == name:
                    yield Path(entry.path)
                elif entry.stat(follow_symlinks=False).st_nlink != 2:
                    pending.append(entry.path)


def _empty(folder: Path) -> None:
    """Kill every process in and below `folder` until none is left."""
    deadline = time.monotonic() + SWEEP_TIMEOUT_SECONDS
    while pids := [pid for path, _, _ in os.walk(folder) for pid in _pids(Path(path))]:
        log.warning("killing what an earlier agent left", extra={"processes": len(pids)})
        for freezer, running in (("cgroup.freeze", "0"), ("freezer.state", "THAWED")):
            for path, _, files in os.walk(folder):
                if freezer in files:
                    with contextlib.suppress(OSError):
                        Path(path, freezer).write_text(running)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        if time.monotonic() > deadline:
            log.error("some processes cannot be killed", extra={"pids": pids})
            return
        time.sleep(0.01)


def _pids(folder: Path) -> list[int]:
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
