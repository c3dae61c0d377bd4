"""Network namespaces, freezers and small disks, named after the run that owns them.

All of them outlive the process that created them. Their names contain its pid and start time, so
that a run can remove the leftovers of killed runs, and nothing of a run that is still active.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NETNS = Path("/run/netns")
FREEZER = Path("/sys/fs/cgroup/freezer")
REQUIRED_PROGRAMS = ("ip", "nft", "tc", "ss", "nsenter", "setpriv")
OWNER = re.compile(r"duly-(\d+)-(\d+)-")
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def missing_requirement() -> str | None:
    """Return why namespaces cannot be used on this machine; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in REQUIRED_PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    probe = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True)
    return f"namespaces are not permitted: {probe.stderr.strip()}" if probe.returncode else None


def prefix_of(pid: int) -> str | None:
    """Return the prefix of the names of a process; None if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return f"duly-{pid}-{stat.rpartition(')')[2].split()[19]}-"


def command(*args: str) -> str:
    """Run a system program, and return its output."""
    completed = subprocess.run(args, capture_output=True, text=True)
    if completed.returncode != 0:
        raise OSError(f"{' '.join(args)}: {completed.stderr.strip() or completed.returncode}")
    return completed.stdout


def inside(namespace: str, *args: str) -> list[str]:
    """Return the command that runs `args` in a namespace.

    Not `ip netns exec`, which remounts /sys without the cgroups.
    """
    return ["nsenter", f"--net={NETNS / namespace}", "--", *args]


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    """Let this thread, and threads that it starts, open sockets in a namespace."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    target = os.open(NETNS / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set_namespace(target)
        try:
            yield
        finally:
            _set_namespace(before)
    finally:
        os.close(before)
        os.close(target)


def _set_namespace(handle: int) -> None:
    if _libc.setns(handle, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def processes_in(namespace: str) -> list[int]:
    """Return the pids of all processes in a namespace."""
    namespace_inode = (NETNS / namespace).stat().st_ino
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (entry / "ns" / "net").stat().st_ino == namespace_inode:
                    pids.append(int(entry.name))
    return pids


def kill_all(namespace: str, seconds: float = 10) -> None:
    """Kill all processes in a namespace, frozen first so that no new ones are started."""
    deadline = time.monotonic() + seconds
    while pids := [pid for pid in processes_in(namespace) if pid != os.getpid()]:
        freeze(namespace)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        thaw(namespace)
        if time.monotonic() > deadline:
            raise AssertionError(f"{pids} in {namespace} cannot be killed")
        time.sleep(0.02)


def freeze(namespace: str) -> None:
    """Freeze all processes in a namespace, by its freezer or else by SIGSTOP."""
    state = FREEZER / namespace / "freezer.state"
    if state.exists():
        state.write_text("FROZEN")
        deadline = time.monotonic() + 10
        while state.read_text().strip() != "FROZEN" and time.monotonic() < deadline:
            time.sleep(0.005)
    else:
        _signal_all(namespace, signal.SIGSTOP)


def thaw(namespace: str) -> None:
    """Thaw all processes in a namespace."""
    state = FREEZER / namespace / "freezer.state"
    if state.exists():
        state.write_text("THAWED")
    else:
        _signal_all(namespace, signal.SIGCONT)


def _signal_all(namespace: str, number: int) -> None:
    """Signal all processes, until no new ones appear."""
    signalled: set[int] = set()
    while new := set(processes_in(namespace)) - signalled:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signalled |= new


def create(namespace: str) -> None:
    """Create a namespace with a loopback, and with a freezer if the machine supports it."""
    command("ip", "netns", "add", namespace)
    command("ip", "-n", namespace, "link", "set", "lo", "up")
    if FREEZER.is_dir():
        with contextlib.suppress(OSError):
            (FREEZER / namespace).mkdir()


def remove(namespace: str) -> None:
    """Kill all processes in a namespace, and remove it."""
    thaw(namespace)
    kill_all(namespace)
    command("ip", "netns", "del", namespace)
    _remove_freezer(namespace)


def _remove_freezer(namespace: str, seconds: float = 10) -> None:
    """Remove a freezer, with retries, because killed processes stay in it for a moment."""
    deadline = time.monotonic() + seconds
    while (FREEZER / namespace).is_dir() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            (FREEZER / namespace).rmdir()
            return
        time.sleep(0.01)


def mount_disk(name: str, folder: Path, megabytes: int) -> None:
    """Mount a disk of `megabytes` at `folder`."""
    folder.mkdir(exist_ok=True, parents=True)
    options = f"size={megabytes}m,mode=755"
    command("mount", "-t", "tmpfs", "-o", options, name, str(folder))


def unmount_disks(prefix: str) -> None:
    """Unmount every disk whose name begins with `prefix`."""
    for line in Path("/proc/mounts").read_text().splitlines():
        name, folder = line.split()[:2]
        if name.startswith(prefix):
            with contextlib.suppress(OSError):
                command("umount", "--lazy", folder)


def sweep() -> None:
    """Remove the leftovers of runs whose process has ended."""
    names = [path.name for path in NETNS.iterdir()] if NETNS.is_dir() else []
    disks = [line.split()[0] for line in Path("/proc/mounts").read_text().splitlines()]
    for name in names:
        if _is_orphan(name):
            with contextlib.suppress(OSError, AssertionError):
                remove(name)
    for name in disks:
        if _is_orphan(name):
            unmount_disks(name)
    for group in FREEZER.glob("duly-*"):
        if _is_orphan(group.name):
            with contextlib.suppress(OSError):
                group.rmdir()


def _is_orphan(name: str) -> bool:
    owner = OWNER.match(name)
    return owner is not None and prefix_of(int(owner[1])) != owner[0]
