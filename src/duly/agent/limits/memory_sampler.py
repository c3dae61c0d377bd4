"""Finds attempts that use more memory than they were given, where no cgroup limits it.

Every sample adds up what the processes of an attempt hold. Resident pages are quick to read but
count what processes share once for each of them, so those of an attempt that seem to be too many
are counted again by their proportional share. A task can go over its limit between two samples.
"""

# The supervisor imports no more than it must, so pathlib stays out.
# ruff: noqa: PTH123

import resource
from collections.abc import Iterable

from duly.agent.attempt import Attempt
from duly.agent.tree import Tree, living_processes

SAMPLE_INTERVAL = 0.9
"""Seconds between two samples."""
PAGE = resource.getpagesize()


def find_over_limit(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Note how much memory each attempt holds now, and return those that hold too much."""
    processes = living_processes()
    over = []
    for attempt in attempts:
        tree, limit = attempt.tree, attempt.spec["limits"][0]
        pids = tree.members(processes) if isinstance(tree, Tree) else tree.pids()
        used = sum(map(resident_memory, pids))
        if limit and used > limit:
            used = sum(map(proportional_memory, pids))
        attempt.sampled_peak = max(attempt.sampled_peak, used)
        if limit and used > limit:
            over.append(attempt)
    return over


def resident_memory(pid: int) -> int:
    """Return the bytes that a process has in memory, shared ones included; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def proportional_memory(pid: int) -> int:
    """Return the bytes of a process, each shared one divided by those who share it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
