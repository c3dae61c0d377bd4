"""Ends attempts whose folders exceed their disk limit.

The agent measures, not the supervisor, because measuring waits for the disk. It runs in a thread,
in passes of bounded length, round-robin by tenant: folders left out of a pass come first in the
next one, and a folder that takes long to measure is measured less often. So a tenant with very many
files costs the others nothing but its share of one thread.

Decision: docs/adr/0027-measured-limits.md.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from duly.agent.limits.disk_usage import DiskUsage, measure
from duly.clock import monotonic

MIN_INTERVAL_SECONDS = 1.0
"""Minimum number of seconds between two measurements of a folder."""
MAX_TIME_SHARE = 0.1
"""Fraction of the time that measuring one folder may take."""

MAX_PASS_SECONDS = 0.5
"""Seconds after which a pass starts no further folder, and the pause before the next pass then."""


class WatchedFolder(NamedTuple):
    """The folder of a running attempt, which is given by its supervisor id."""

    attempt: int
    path: str
    limit: int
    tenant: int | None = None


class DiskWatch:
    """Measures the folders of running attempts, each when it is due."""

    def __init__(
        self,
        running: Callable[[], Iterable[WatchedFolder]],
        on_exceeded: Callable[[int, DiskUsage], None],
    ) -> None:
        self._running = running
        self._on_exceeded = on_exceeded
        self._next_at: dict[int, float] = {}
        """When the folder of each attempt is due."""
        self._served_at: dict[int | None, float] = {}
        """When a folder of each tenant was last measured."""

    async def run(self) -> None:
        """Measure until cancelled."""
        is_complete = True
        while True:
            await asyncio.sleep(MIN_INTERVAL_SECONDS if is_complete else MAX_PASS_SECONDS)
            is_complete = await self.measure_due()

    async def measure_due(self) -> bool:
        """Measure the folders that are due; False if some are left for the next pass.

        New attempts are due in the next pass.
        """
        now = monotonic()
        running = [folder for folder in self._running() if folder.limit]
        due = [folder for folder in running if self._next_at.get(folder.attempt, now + 1) <= now]
        self._next_at = {
            folder.attempt: self._next_at.get(folder.attempt, now) for folder in running
        }
        tenants = {folder.tenant for folder in running}
        self._served_at = {
            tenant: at for tenant, at in self._served_at.items() if tenant in tenants
        }
        if not due:
            return True
        turns = order_round_robin(due, self._next_at, self._served_at)
        measured = await asyncio.to_thread(_measure_some, turns)
        for folder, usage, seconds in measured:
            self._next_at[folder.attempt] = now + seconds / MAX_TIME_SHARE
            self._served_at[folder.tenant] = now
            if usage.exceeds(folder.limit):
                self._on_exceeded(folder.attempt, usage)
        return len(measured) == len(due)


def order_round_robin(
    due: Iterable[WatchedFolder],
    next_at: Mapping[int, float],
    served_at: Mapping[int | None, float],
) -> list[WatchedFolder]:
    """Order folders round-robin: one of each tenant, then another one of each, and so on.

    The tenant that was served longest ago comes first, and so does the folder due longest.
    """
    rounds: Counter[int | None] = Counter()
    turns: list[tuple[int, float, int, WatchedFolder]] = []
    for folder in sorted(due, key=lambda folder: next_at[folder.attempt]):
        rounds[folder.tenant] += 1
        last = served_at.get(folder.tenant, float("-inf"))
        turns.append((rounds[folder.tenant], last, len(turns), folder))
    return [folder for *_, folder in sorted(turns)]


def _measure_some(folders: Iterable[WatchedFolder]) -> list[tuple[WatchedFolder, DiskUsage, float]]:
    """Measure folders until the pass is over; returns usage and duration in seconds of each."""
    found: list[tuple[WatchedFolder, DiskUsage, float]] = []
    until = monotonic() + MAX_PASS_SECONDS
    for folder in folders:
        began = monotonic()
        if found and began >= until:
            break
        usage = measure(folder.path)
        found.append((folder, usage, monotonic() - began))
    return found
