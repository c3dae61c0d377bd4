"""Reads CPU time, memory and parents of processes from /proc."""

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of the processes themselves, and of the children that they have reaped."""

    own: float = 0.0
    reaped: float = 0.0

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.own + other.own, self.reaped + other.reaped)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.own - other.own, self.reaped - other.reaped)


@dataclass(frozen=True)
class Memory:
    """Mebibytes: resident (RSS), and with shared pages counted proportionally (PSS)."""

    rss: float = 0.0
    pss: float = 0.0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.rss + other.rss, self.pss + other.pss)


def cpu(pids: Iterable[int]) -> Cpu:
    """Return the CPU seconds of processes, in clock ticks; ended processes count as 0."""
    return sum((_cpu(pid) for pid in pids), Cpu())


def precise_cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of live processes, from schedstat: clock ticks are too coarse."""
    return sum(_precise_cpu_seconds(pid) for pid in pids)


def memory(pids: Iterable[int]) -> Memory:
    """Return the memory of processes."""
    return sum((_memory(pid) for pid in pids), Memory())


def peak_memory(pid: int) -> float:
    """Return the peak resident memory of a process in mebibytes."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """Return the live children of `pid`."""
    return [child for child, parent in _parents().items() if parent == pid]


def descendants(pid: int) -> list[int]:
    """Return the live descendants of `pid`."""
    parents = _parents()
    tree = [pid]
    for process in tree:
        tree += [child for child, parent in parents.items() if parent == process]
    return tree[1:]


def command(pid: int) -> str:
    """Return the command line of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return ""


def send_signal(pid: int, signal_number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)


def _cpu(pid: int) -> Cpu:
    fields = _stat(pid)
    if fields is None:
        return Cpu()
    own, user, system = sum(map(int, fields[11:13])), int(fields[13]), int(fields[14])
    return Cpu(own / TICKS, (user + system) / TICKS)


def _precise_cpu_seconds(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    with contextlib.suppress(OSError):
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    return 0.0


def _memory(pid: int) -> Memory:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
        return Memory(sizes["Rss"], sizes["Pss"])
    return Memory()


def _stat(pid: int) -> list[str] | None:
    try:
        # The command name may contain anything, even parentheses; only numbers follow the last.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _parents() -> dict[int, int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(entry.name))
        if fields is not None:
            parents[int(entry.name)] = int(fields[1])
    return parents
