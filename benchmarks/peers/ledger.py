"""Records which tasks ran: one line each in a file, appended by the worker.

A write of eight bytes per task costs microseconds, compared with the millisecond of starting a
process, and is the same for every system that calls our Python function.
"""

import os
from collections import Counter
from functools import cache
from pathlib import Path

from benchmarks.peers.system import CheckFailed

LINE_BYTES = 8


@cache
def _descriptor(ledger: Path) -> int:
    return os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def record(ledger: Path, number: int) -> None:
    """Record that task `number` has run."""
    os.write(_descriptor(ledger), b"%07d\n" % number)


def count(ledger: Path) -> int:
    """Return the number of recorded runs."""
    return ledger.stat().st_size // LINE_BYTES if ledger.exists() else 0


def check(ledger: Path, total: int) -> None:
    """Raise `CheckFailed` unless every number below `total` was recorded exactly once."""
    lines = ledger.read_text().split() if ledger.exists() else []
    runs = Counter(int(line) for line in lines)
    missing = [number for number in range(total) if number not in runs]
    repeated = [number for number, times in runs.items() if times > 1]
    unknown = [number for number in runs if number >= total]
    if missing or repeated or unknown:
        raise CheckFailed(
            f"of {total} tasks {len(missing)} did not run, {len(repeated)} ran more than once, "
            f"and {len(unknown)} were never submitted"
        )
