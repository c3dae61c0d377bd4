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
LONGEST = 4096
"""Bytes of a file of the kernel's that says a few lines."""


class Layout(NamedTuple):
    """The folders in which this agent makes its groups, by what they can do.

    `unified` is on cgroup v2 and `controllers` are those that it has there; the other three
    are on v1. A task joins every one of them that is not None.
    """

    unified: str | None = None
    controllers: tuple[str, ...] = ()
    freezer: str | None = None
    memory: str | None = None
    pids: str | None = None

    @property
    def folders(self) -> list[str]:
        """Return every folder in which a group has a part."""
        return [
            folder
            for folder in (self.unified, self.freezer, self.memory, self.pids)
            if folder is not None
        ]

    @property
    def can_freeze(self) -> bool:
        """Tell whether attempts can be frozen instead of killed."""
        return self.freezer is not None or self.unified is not None

    @property
    def limits_memory(self) -> bool:
        """Tell whether going over a memory limit is noticed."""
        return self.memory is not None or "memory" in self.controllers


class Measured(NamedTuple):
    """What a group has used since it was last opened; None where it is not known."""

    cpu_seconds: float | None
    peak_memory: int | None
    out_of_memory: bool


class Group:
    """The cgroup of one attempt, in every hierarchy of the layout."""

    def __init__(self, layout: Layout, name: str, memory: int, processes: int) -> None:
        self.memory = memory
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
        if memory:
            self._limit_memory(memory)
        self._limit_processes(processes)

    def is_empty(self) -> bool:
        """Tell whether no process is left in it."""
        if self._layout.unified is not None:
            return b"populated 0" in self._read("cgroup.events")
        return not self._pids()

    def signal(self, number: int) -> None:
        """Send a signal to every process that is in it at this moment."""
        for pid in self._pids():
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

    def used(self) -> tuple[float | None, int | None]:
        """Return the cpu seconds and the peak of memory so far, without measuring for good."""
        cpu = self._cpu()
        return None if cpu is None else cpu - self._cpu_before, self._peak()

    def renew(self) -> bool:
        """Make an empty group ready for another attempt; False means that it cannot be."""
        if self._frozen:
            self.thaw()
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
        elif "memory" in self._layout.controllers:
            self._write("memory.max", text)
            self._write("memory.swap.max", b"0")
            self._write("memory.oom.group", b"1")

    def _limit_processes(self, limit: int) -> None:
        text = str(limit).encode()
        if self._layout.pids is not None:
            self._write_path(f"{self._layout.pids}/{self.name}/pids.max", text)
        elif "pids" in self._layout.controllers:
            self._write("pids.max", text)

    def _pids(self) -> list[int]:
        # Opened afresh each time: v1 answers a second read of one open file from a cache.
        fd = self._open(f"{self._main}/cgroup.procs", os.O_RDONLY)
        try:
            return [int(line) for line in os.read(fd, 2**20).split()]
        finally:
            os.close(fd)

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
