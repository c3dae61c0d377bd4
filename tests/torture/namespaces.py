"""Network namespaces, freezers and small disks, named after the run that owns them.

All of them outlive the process that made them. Their names say who that was, by pid and
start time, so that a run can clear away what one that was killed has left, and nothing
of a run that is still at work.
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
NEEDED = ("ip", "nft", "tc", "ss", "nsenter", "setpriv")
OWNED = re.compile(r"duly-(\d+)-(\d+)-")
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def lacking() -> str | None:
    """Say why there can be no namespaces here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True)
    return f"no namespaces for us here: {tried.stderr.strip()}" if tried.returncode else None


def prefix_of(pid: int) -> str | None:
    """Return what the names of a process begin with; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return f"duly-{pid}-{stat.rpartition(')')[2].split()[19]}-"


def command(*args: str) -> str:
    """Run a program of the system, and return what it said."""
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(args)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def inside(namespace: str, *args: str) -> list[str]:
    """Return the command that runs `args` in a namespace.

    Not `ip netns exec`: that one mounts /sys anew, and with it the cgroups would be gone.
    """
    return ["nsenter", f"--net={NETNS / namespace}", "--", *args]


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    """Let this thread, and those that it starts, open their sockets in a namespace."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(NETNS / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set_namespace(there)
        try:
            yield
        finally:
            _set_namespace(before)
    finally:
        os.close(before)
        os.close(there)


def _set_namespace(handle: int) -> None:
    if _libc.setns(handle, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def processes_in(namespace: str) -> list[int]:
    """Return the pids of all that runs in a namespace."""
    here = (NETNS / namespace).stat().st_ino
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (entry / "ns" / "net").stat().st_ino == here:
                    found.append(int(entry.name))
    return found


def kill_all(namespace: str, seconds: float = 10) -> None:
    """Kill everything in a namespace; frozen first, so that nothing is started meanwhile."""
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
    """Let nothing in a namespace run: by its freezer, or one by one where there is none."""
    state = FREEZER / namespace / "freezer.state"
    if state.exists():
        state.write_text("FROZEN")
        deadline = time.monotonic() + 10
        while state.read_text().strip() != "FROZEN" and time.monotonic() < deadline:
            time.sleep(0.005)
    else:
        _signal_all(namespace, signal.SIGSTOP)


def thaw(namespace: str) -> None:
    """Let everything in a namespace run on."""
    state = FREEZER / namespace / "freezer.state"
    if state.exists():
        state.write_text("THAWED")
    else:
        _signal_all(namespace, signal.SIGCONT)


def _signal_all(namespace: str, number: int) -> None:
    """Signal until nobody new is there: what is stopped starts no others."""
    told: set[int] = set()
    while new := set(processes_in(namespace)) - told:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        told |= new


def make(namespace: str) -> None:
    """Make a namespace with its loopback, and its freezer where the machine has one."""
    command("ip", "netns", "add", namespace)
    command("ip", "-n", namespace, "link", "set", "lo", "up")
    if FREEZER.is_dir():
        with contextlib.suppress(OSError):
            (FREEZER / namespace).mkdir()


def remove(namespace: str) -> None:
    """End everything in a namespace, and take it away."""
    thaw(namespace)
    kill_all(namespace)
    command("ip", "netns", "del", namespace)
    _remove_freezer(namespace)


def _remove_freezer(namespace: str, seconds: float = 10) -> None:
    """Take a freezer away; whoever was killed just now is in it for a moment longer."""
    deadline = time.monotonic() + seconds
    while (FREEZER / namespace).is_dir() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            (FREEZER / namespace).rmdir()
            return
        time.sleep(0.01)


def mount_disk(name: str, folder: Path, megabytes: int) -> None:
    """Make `folder` a disk of its own that is full at `megabytes`."""
    folder.mkdir(exist_ok=True, parents=True)
    options = f"size={megabytes}m,mode=755"
    command("mount", "-t", "tmpfs", "-o", options, name, str(folder))


def unmount_disks(prefix: str) -> None:
    """Take away every disk whose name begins with `prefix`."""
    for line in Path("/proc/mounts").read_text().splitlines():
        name, folder = line.split()[:2]
        if name.startswith(prefix):
            with contextlib.suppress(OSError):
                command("umount", "--lazy", folder)


def sweep() -> None:
    """Clear away what runs have left whose process is gone."""
    names = [one.name for one in NETNS.iterdir()] if NETNS.is_dir() else []
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
    owner = OWNED.match(name)
    return owner is not None and prefix_of(int(owner[1])) != owner[0]
