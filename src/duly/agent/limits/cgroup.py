"""Control groups: how the whole tree of an attempt is limited, frozen, measured and killed.

Linux has two versions, and many machines mix them: limits on v1, and a v2 mount
beside it that can freeze and kill but has no controllers. `find` looks at what is
there and says which hierarchies are of use (`Layout`); a `Group` is one attempt's
cgroup in each of them. Nothing here needs more than the standard library, because
the supervisor imports it and must stay small.

A group is used again once it is empty: making and removing three directories costs
about as much as starting a small program.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH102, PTH106, SIM105

import os
import signal
from typing import NamedTuple

LEFT_BEHIND = 4 * 2**20
"""A group that still has this many bytes charged to it (shared memory) is not used again."""
CPU_PERIOD = 100_000
"""Microseconds over which a cap on processor time is counted, the kernel's default."""
LONGEST = 4096
"""Bytes of a file of the kernel's that says a few lines."""


class Layout(NamedTuple):
    """The folders in which this agent makes its groups, by what they can do.

    `unified` is on cgroup v2 and `controllers` are those that it has there; the other four
    are on v1. A task joins every one of them that is not None.
    """

    unified: str | None = None
    controllers: tuple[str, ...] = ()
    freezer: str | None = None
    memory: str | None = None
    pids: str | None = None
    cpu: str | None = None

    @property
    def folders(self) -> list[str]:
        """Return every folder in which a group has a part."""
        return [
            folder
            for folder in (self.unified, self.freezer, self.memory, self.pids, self.cpu)
            if folder is not None
        ]

    @property
    def can_freeze(self) -> bool:
        """Tell whether attempts can be frozen instead of killed."""
        return self.freezer is not None or self.unified is not None

    @property
    def limits_memory(self) -> bool:
        """Tell whether the kernel limits the memory of attempts."""
        return self.memory is not None or "memory" in self.controllers

    @property
    def shares_cpu(self) -> bool:
        """Tell whether the kernel shares processors between attempts by what they were given."""
        return self.cpu is not None or "cpu" in self.controllers


class Limits(NamedTuple):
    """What a group allows."""

    memory: int = 0
    """In bytes; 0 means no limit."""
    cpu_milli: int = 0
    """Its share of the processors when they are contended, in thousandths of one; 0: one."""
    cpu_quota: bool = False
    """Whether that is also the most that it gets when they are not."""


class Measured(NamedTuple):
    """What a group has used since it was last opened; None where it is not known."""

    cpu_seconds: float | None
    peak_memory: int | None
    out_of_memory: bool


class Group:
    """The cgroup of one attempt, in every hierarchy of the layout."""

    def __init__(self, layout: Layout, name: str, limits: Limits, processes: int) -> None:
        self.limits = limits
        self.oom_event: int | None = None
        """Readable when the group has run out of memory; None where nothing tells of that."""
        self._layout = layout
        self._folders = [f"{folder}/{name}" for folder in layout.folders]
        self._main = self._folders[0]
        self._memory = f"{layout.memory}/{name}" if layout.memory is not None else self._main
        self._files: dict[str, int] = {}
        """What is open, by name: no two hierarchies of a layout have files of the same name."""
        self._cpu_before = 0.0
        self._kills_before = 0
        self._peak_before = LEFT_BEHIND
        self._frozen = False
        for folder in self._folders:
            os.mkdir(folder)
        self.name = name
        if limits.memory:
            self._limit_memory(limits.memory)
        self._limit_processes(processes)
        self._limit_cpu(limits)

    def is_empty(self) -> bool:
        """Tell whether no process is left in it."""
        if self._layout.unified is not None:
            return b"populated 0" in self._read("cgroup.events")
        return not self.pids()

    def pids(self) -> list[int]:
        """Return the processes that are in it at this moment."""
        # Opened afresh each time: v1 answers a second read of one open file from a cache.
        fd = self._open(f"{self._main}/cgroup.procs", os.O_RDONLY)
        try:
            return [int(line) for line in os.read(fd, 2**20).split()]
        finally:
            os.close(fd)

    def signal(self, number: int) -> None:
        """Send a signal to every process that is in it at this moment."""
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """Kill every process in it; call it again until it is empty."""
        if self._layout.unified is not None and self._write("cgroup.kill", b"1"):
            return
        # Frozen processes start no others, so that the list cannot go stale under us; on v1
        # they die only when thawed.
        self.freeze()
        self.signal(signal.SIGKILL)
        self.thaw()

    def freeze(self) -> None:
        """Let nothing in it run."""
        self._frozen = True
        if self._layout.unified is not None:
            self._write("cgroup.freeze", b"1")
        elif self._layout.freezer is not None:
            self._write("freezer.state", b"FROZEN")

    def thaw(self) -> None:
        """Let it run on."""
        self._frozen = False
        if self._layout.unified is not None:
            self._write("cgroup.freeze", b"0")
        elif self._layout.freezer is not None:
            self._write("freezer.state", b"THAWED")

    def measure(self) -> Measured:
        """Return what was used since the group was made or last measured."""
        cpu = self._cpu()
        kills = self._oom_kills()
        peak = self._peak()
        measured = Measured(
            None if cpu is None else cpu - self._cpu_before,
            peak,
            kills > self._kills_before,
        )
        self._cpu_before, self._kills_before = cpu or 0.0, kills
        self._peak_before = peak or LEFT_BEHIND
        return measured

    def clear_oom_event(self) -> None:
        """Forget that memory has run out, so that it is told of the next time only."""
        if self.oom_event is not None:
            try:
                os.eventfd_read(self.oom_event)
            except BlockingIOError:
                pass

    def used(self) -> tuple[float | None, int | None]:
        """Return the cpu seconds and the peak of memory so far, without measuring for good."""
        cpu = self._cpu()
        return None if cpu is None else cpu - self._cpu_before, self._peak()

    def renew(self) -> bool:
        """Make an empty group ready for another attempt; False means that it cannot be."""
        if self._frozen:
            self.thaw()
        # Whoever ran out of memory here is dead, and was told of before: what comes is the next's.
        self.clear_oom_event()
        if self._layout.memory is not None:
            left = self._peak_before
            if left >= LEFT_BEHIND:
                left = int(self._read("memory.usage_in_bytes", self._memory) or b"0")
            return left < LEFT_BEHIND and self._reset_peak()
        # The peak of v2 can be reset only on new kernels, and only per open file.
        return "memory" not in self._layout.controllers

    def remove(self) -> None:
        """Take an empty group away; one that is not empty stays for the next sweep."""
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
        """Ask to be told when memory runs out: v1 kills a single process then, and goes on."""
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
        quota = max(1000, cpu_milli * CPU_PERIOD // 1000) if limits.cpu_quota else None
        if self._layout.cpu is not None:
            folder = f"{self._layout.cpu}/{self.name}"
            self._write_path(f"{folder}/cpu.shares", str(cpu_shares(cpu_milli)).encode())
            if quota is not None:
                self._write_path(f"{folder}/cpu.cfs_quota_us", str(quota).encode())
        elif "cpu" in self._layout.controllers:
            self._write("cpu.weight", str(cpu_weight(cpu_milli)).encode())
            if quota is not None:
                self._write("cpu.max", f"{quota} {CPU_PERIOD}".encode())

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
        """Return what a file says now, or nothing if it is not there; it stays open."""
        try:
            fd = self._files.get(name)
            if fd is None:
                path = f"{folder or self._main}/{name}"
                fd = self._files[name] = self._open(path, os.O_RDONLY)
            return os.pread(fd, LONGEST, 0)
        except OSError:
            return b""

    def _reset_peak(self) -> bool:
        """Set the peak back to what is used now; unlike the rest, this is written every time."""
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
    """Return the v1 weight of a group, of which one processor has 1024."""
    return min(max(2, cpu_milli * 1024 // 1000), 262_144)


def cpu_weight(cpu_milli: int) -> int:
    """Return the v2 weight of a group, of which one processor has 100."""
    return min(max(1, cpu_milli // 10), 10_000)
