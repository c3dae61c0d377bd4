"""Cgroups limit, freeze, measure and kill the whole process tree of an attempt.

Linux has two cgroup versions, and many machines mix them: limits on v1, beside a v2 mount that can
freeze and kill but has no controllers. A `Layout` names the usable hierarchies
(`cgroup_hierarchies.py` detects them); a `Cgroup` is one attempt's cgroup in each of them. Empty
cgroups are reused: making and removing three directories costs about as much as starting a small
program. Only the standard library is used: the supervisor imports this and must stay small.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH102, PTH106, SIM105

import os
import signal
from typing import NamedTuple

MAX_LEFTOVER_BYTES = 4 * 2**20
"""A cgroup that still has this many bytes charged to it (shared memory) is not reused."""
CPU_PERIOD_MICROSECONDS = 100_000
"""The period of a CPU quota in microseconds, the kernel's default."""
MAX_READ_BYTES = 4096
"""Enough for the cgroup files that are read, which have a few lines."""


class Layout(NamedTuple):
    """The parent folders of this agent's cgroups, by hierarchy.

    `unified` is on cgroup v2, with the `controllers` that are enabled there; the other four are
    on v1. A task joins every hierarchy that is not None.
    """

    unified: str | None = None
    controllers: tuple[str, ...] = ()
    freezer: str | None = None
    memory: str | None = None
    pids: str | None = None
    cpu: str | None = None

    @property
    def folders(self) -> list[str]:
        """Return the folder of every hierarchy in use."""
        return [
            folder
            for folder in (self.unified, self.freezer, self.memory, self.pids, self.cpu)
            if folder is not None
        ]

    @property
    def can_freeze(self) -> bool:
        """Return True if attempts can be frozen instead of killed."""
        return self.freezer is not None or self.unified is not None

    @property
    def limits_memory(self) -> bool:
        """Return True if the kernel limits the memory of attempts."""
        return self.memory is not None or "memory" in self.controllers

    @property
    def shares_cpu(self) -> bool:
        """Return True if the kernel shares CPUs between attempts in proportion to their limits."""
        return self.cpu is not None or "cpu" in self.controllers


class Limits(NamedTuple):
    """The limits of a cgroup."""

    memory: int = 0
    """Bytes; 0 means no limit."""
    cpu_milli: int = 0
    """Share of contended CPUs in thousandths of a CPU; 0 means one CPU."""
    cpu_quota: bool = False
    """Whether `cpu_milli` is also an upper bound when CPUs are idle."""


class CgroupUsage(NamedTuple):
    """What a cgroup has used since it was made or last measured; None if unknown."""

    cpu_seconds: float | None
    peak_memory: int | None
    out_of_memory: bool


class Cgroup:
    """The cgroup of one attempt, in every hierarchy of the layout."""

    def __init__(self, layout: Layout, name: str, limits: Limits, processes: int) -> None:
        self.limits = limits
        self.oom_event: int | None = None
        """An eventfd that is readable after an OOM event; None where there is no such event."""
        self._layout = layout
        self._folders = [f"{folder}/{name}" for folder in layout.folders]
        self._main = self._folders[0]
        self._memory = f"{layout.memory}/{name}" if layout.memory is not None else self._main
        self._files: dict[str, int] = {}
        """Open files by name: no two hierarchies of a layout have files of the same name."""
        self._cpu_before = 0.0
        self._kills_before = 0
        self._peak_before = MAX_LEFTOVER_BYTES
        self._frozen = False
        for folder in self._folders:
            os.mkdir(folder)
        self.name = name
        if limits.memory:
            self._limit_memory(limits.memory)
        self._limit_processes(processes)
        self._limit_cpu(limits)

    def is_empty(self) -> bool:
        """Return True if no process is left in the cgroup."""
        if self._layout.unified is not None:
            return b"populated 0" in self._read("cgroup.events")
        return not self.pids()

    def pids(self) -> list[int]:
        """Return the processes that are in the cgroup at this moment."""
        # Opened afresh each time: v1 answers a second read of the same open file from a cache.
        fd = self._open(f"{self._main}/cgroup.procs", os.O_RDONLY)
        try:
            return [int(line) for line in os.read(fd, 2**20).split()]
        finally:
            os.close(fd)

    def signal(self, number: int) -> None:
        """Send a signal to every process that is in the cgroup at this moment."""
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """Kill every process in the cgroup; call again until it is empty."""
        if self._layout.unified is not None and self._write("cgroup.kill", b"1"):
            return
        # Frozen processes cannot fork, so the list of pids does not go stale. On v1 they die only
        # when thawed.
        self.freeze()
        self.signal(signal.SIGKILL)
        self.thaw()

    def freeze(self) -> None:
        """Freeze every process in the cgroup."""
        self._frozen = True
        if self._layout.unified is not None:
            self._write("cgroup.freeze", b"1")
        elif self._layout.freezer is not None:
            self._write("freezer.state", b"FROZEN")

    def thaw(self) -> None:
        """Let the frozen processes continue."""
        self._frozen = False
        if self._layout.unified is not None:
            self._write("cgroup.freeze", b"0")
        elif self._layout.freezer is not None:
            self._write("freezer.state", b"THAWED")

    def measure(self) -> CgroupUsage:
        """Return the usage since the cgroup was made or last measured."""
        cpu = self._cpu()
        kills = self._oom_kills()
        peak = self._peak()
        measured = CgroupUsage(
            None if cpu is None else cpu - self._cpu_before,
            peak,
            kills > self._kills_before,
        )
        self._cpu_before, self._kills_before = cpu or 0.0, kills
        self._peak_before = peak or MAX_LEFTOVER_BYTES
        return measured

    def clear_oom_event(self) -> None:
        """Consume the pending OOM event, so that only the next one is signalled."""
        if self.oom_event is not None:
            try:
                os.eventfd_read(self.oom_event)
            except BlockingIOError:
                pass

    def usage_so_far(self) -> tuple[float | None, int | None]:
        """Return the CPU seconds and the peak memory so far, without resetting the baseline."""
        cpu = self._cpu()
        return None if cpu is None else cpu - self._cpu_before, self._peak()

    def renew(self) -> bool:
        """Prepare an empty cgroup for another attempt; False if it cannot be reused."""
        if self._frozen:
            self.thaw()
        # An OOM event of the last attempt was already handled: the next one is the next attempt's.
        self.clear_oom_event()
        if self._layout.memory is not None:
            left = self._peak_before
            if left >= MAX_LEFTOVER_BYTES:
                left = int(self._read("memory.usage_in_bytes", self._memory) or b"0")
            return left < MAX_LEFTOVER_BYTES and self._reset_peak()
        # On v2 the peak can be reset only on new kernels, and only per open file.
        return "memory" not in self._layout.controllers

    def remove(self) -> None:
        """Remove an empty cgroup; one that is not empty stays for the next sweep."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        if self.oom_event is not None:
            os.close(self.oom_event)
            self.oom_event = None
        for folder in self._folders:
            try:
                os.rmdir(folder)
            except OSError:
                pass

    def _limit_memory(self, limit: int) -> None:
        text = str(limit).encode()
        if self._layout.memory is not None:
            self._write_path(f"{self._memory}/memory.limit_in_bytes", text)
            self._write_path(f"{self._memory}/memory.memsw.limit_in_bytes", text)
            self.oom_event = self._open_oom_event()
        elif "memory" in self._layout.controllers:
            self._write("memory.max", text)
            self._write("memory.swap.max", b"0")
            self._write("memory.oom.group", b"1")

    def _open_oom_event(self) -> int | None:
        """Register for OOM events: v1 kills only a single process, and the others go on."""
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        control = self._open(f"{self._memory}/memory.oom_control", os.O_RDONLY)
        try:
            request = f"{event} {control}".encode()
            if self._write_path(f"{self._memory}/cgroup.event_control", request):
                return event
        finally:
            os.close(control)
        os.close(event)
        return None

    def _limit_cpu(self, limits: Limits) -> None:
        cpu_milli = limits.cpu_milli or 1000
        quota = max(1000, cpu_milli * CPU_PERIOD_MICROSECONDS // 1000) if limits.cpu_quota else None
        if self._layout.cpu is not None:
            folder = f"{self._layout.cpu}/{self.name}"
            self._write_path(f"{folder}/cpu.shares", str(cpu_shares(cpu_milli)).encode())
            if quota is not None:
                self._write_path(f"{folder}/cpu.cfs_quota_us", str(quota).encode())
        elif "cpu" in self._layout.controllers:
            self._write("cpu.weight", str(cpu_weight(cpu_milli)).encode())
            if quota is not None:
                self._write("cpu.max", f"{quota} {CPU_PERIOD_MICROSECONDS}".encode())

    def _limit_processes(self, limit: int) -> None:
        text = str(limit).encode()
        if self._layout.pids is not None:
            self._write_path(f"{self._layout.pids}/{self.name}/pids.max", text)
        elif "pids" in self._layout.controllers:
            self._write("pids.max", text)

    def _cpu(self) -> float | None:
        if self._layout.unified is None:
            return None
        first = self._read("cpu.stat").partition(b"\n")[0]
        return int(first.removeprefix(b"usage_usec ") or b"0") / 1e6

    def _peak(self) -> int | None:
        if self._layout.memory is not None:
            return int(self._read("memory.max_usage_in_bytes", self._memory) or b"0")
        if "memory" in self._layout.controllers:
            return int(self._read("memory.peak") or b"0") or None
        return None

    def _oom_kills(self) -> int:
        if self._layout.memory is not None:
            text = self._read("memory.oom_control", self._memory)
        elif "memory" in self._layout.controllers:
            text = self._read("memory.events")
        else:
            return 0
        for line in text.splitlines():
            if line.startswith(b"oom_kill "):
                return int(line[9:])
        return 0

    def _write(self, name: str, text: bytes) -> bool:
        return self._write_path(f"{self._main}/{name}", text)

    def _read(self, name: str, folder: str | None = None) -> bytes:
        """Return the contents of a file, empty if it does not exist; the file stays open."""
        try:
            fd = self._files.get(name)
            if fd is None:
                path = f"{folder or self._main}/{name}"
                fd = self._files[name] = self._open(path, os.O_RDONLY)
            return os.pread(fd, MAX_READ_BYTES, 0)
        except OSError:
            return b""

    def _reset_peak(self) -> bool:
        """Reset the peak to the current usage; unlike the limits, this is written every time."""
        try:
            fd = self._files.get("reset")
            if fd is None:
                path = f"{self._memory}/memory.max_usage_in_bytes"
                fd = self._files["reset"] = self._open(path, os.O_WRONLY)
            os.write(fd, b"0")
        except OSError:
            return False
        return True

    def _write_path(self, path: str, text: bytes) -> bool:
        try:
            fd = self._open(path, os.O_WRONLY)
        except OSError:
            return False
        try:
            os.write(fd, text)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    @staticmethod
    def _open(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC)


def cpu_shares(cpu_milli: int) -> int:
    """Return the v1 weight of a cgroup; one CPU weighs 1024."""
    return min(max(2, cpu_milli * 1024 // 1000), 262_144)


def cpu_weight(cpu_milli: int) -> int:
    """Return the v2 weight of a cgroup; one CPU weighs 100."""
    return min(max(1, cpu_milli // 10), 10_000)
