"""Finds attempts that exceed their memory limit, where no cgroup enforces it.

Every sample adds up the memory of an attempt's processes. Resident pages (RSS) are quick to read
but count shared pages once per process, so an attempt that seems to be over its limit is measured
again by proportional share (PSS). A task can exceed its limit between two samples.

Decision: docs/adr/0027-measured-limits.md.
"""

# The supervisor imports no more than it must, so pathlib stays out.
# ruff: noqa: PTH123

import resource
from collections.abc import Iterable

from duly.agent.supervision.attempt import SupervisedAttempt
from duly.agent.supervision.process_tree import ProcessTree, living_processes

SAMPLE_INTERVAL_SECONDS = 0.9
"""Seconds between two samples."""
PAGE_BYTES = resource.getpagesize()


def find_over_limit(attempts: Iterable[SupervisedAttempt]) -> list[SupervisedAttempt]:
    """Sample the memory of each attempt, update its peak, and return those over their limit."""
    processes = living_processes()
    over = []
    for attempt in attempts:
        tree, limit = attempt.tree, attempt.spec["limits"][0]
        pids = tree.members(processes) if isinstance(tree, ProcessTree) else tree.pids()
        used = sum(map(resident_memory, pids))
        if limit and used > limit:
            used = sum(map(proportional_memory, pids))
        attempt.sampled_peak = max(attempt.sampled_peak, used)
        if limit and used > limit:
            over.append(attempt)
    return over


def resident_memory(pid: int) -> int:
    """Return the resident bytes of a process, shared pages included; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def proportional_memory(pid: int) -> int:
    """Return the bytes of a process, shared pages divided by the number of their processes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
