"""Records which tasks ran: one line each in a file, appended by the worker.

One write of eight bytes for each task costs microseconds beside the millisecond of starting
a process, and is the same for every system that runs our Python function.
"""

import os
from collections import Counter
from functools import cache
from pathlib import Path

from benchmarks.peers.system import Wrong

WIDTH = 8


@cache
def _descriptor(ledger: Path) -> int:
    return os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def enter(ledger: Path, number: int) -> None:
    """Note that `number` has run."""
    os.write(_descriptor(ledger), b"%07d\n" % number)


def count(ledger: Path) -> int:
    """Return how many lines there are."""
    return ledger.stat().st_size // WIDTH if ledger.exists() else 0


def check(ledger: Path, total: int) -> None:
    """Raise `Wrong` unless every number below `total` is there exactly once."""
    lines = ledger.read_text().split() if ledger.exists() else []
    found = Counter(int(line) for line in lines)
    missing = [number for number in range(total) if number not in found]
    again = [number for number, times in found.items() if times > 1]
    strange = [number for number in found if number >= total]
    if missing or again or strange:
        raise Wrong(
            f"of {total} tasks {len(missing)} did not run, {len(again)} ran more than once, "
            f"and {len(strange)} were never submitted"
        )
