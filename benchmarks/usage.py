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
    """CPU seconds: of the processes themselves, and of those they have started and buried."""

    own: float = 0.0
    buried: float = 0.0

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.own + other.own, self.buried + other.buried)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.own - other.own, self.buried - other.buried)


@dataclass(frozen=True)
class Memory:
    """Mebibytes: resident, and with what is shared counted once."""

    rss: float = 0.0
    pss: float = 0.0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.rss + other.rss, self.pss + other.pss)


def cpu(pids: Iterable[int]) -> Cpu:
    """Return the CPU seconds of processes; one that is gone counts nothing."""
    return sum((_cpu(pid) for pid in pids), Cpu())


def on_cpu(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes that live, to the microsecond; of little, ticks lie."""
    return sum(_on_cpu(pid) for pid in pids)


def memory(pids: Iterable[int]) -> Memory:
    """Return the memory of processes."""
    return sum((_memory(pid) for pid in pids), Memory())


def peak(pid: int) -> float:
    """Return the most mebibytes that a process had resident at a time, ever."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """Return the processes that `pid` has started and that live."""
    return [child for child, parent in _parents().items() if parent == pid]


def descendants(pid: int) -> list[int]:
    """Return what `pid` has started, and what those have."""
    parents = _parents()
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def command(pid: int) -> str:
    """Return the command line of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return ""


def signal_to(pid: int, which: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, which)


def _cpu(pid: int) -> Cpu:
    fields = _stat(pid)
    if fields is None:
        return Cpu()
    own, user, system = sum(map(int, fields[11:13])), int(fields[13]), int(fields[14])
    return Cpu(own / TICKS, (user + system) / TICKS)


def _on_cpu(pid: int) -> float:
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
        # The name may hold anything, even brackets; what follows the last one is numbers.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(entry.name))
        if fields is not None:
            found[int(entry.name)] = int(fields[1])
    return found
