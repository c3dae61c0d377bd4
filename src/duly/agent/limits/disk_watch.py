"""Ends attempts whose folders hold more than the disk space they were given.

The agent measures, and not the supervisor, because measuring waits for a disk. It is done in a
thread, in passes of bounded length, round-robin by tenant: what a pass leaves comes first in the
next one. A folder that takes long to count is counted less often. So a tenant with very many files
costs the others nothing but its share of one thread.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from duly.agent.disk_usage import DiskUsage, measure
from duly.clock import monotonic

INTERVAL = 1.0
"""Seconds between two measurements of a folder, at least."""
MAX_TIME_SHARE = 0.1
"""The part of the time that measuring one folder may take."""

MAX_PASS_TIME = 0.5
"""Seconds after which a pass begins with no other folder, and the pause until the next one then."""


class Folder(NamedTuple):
    """The folder of a running attempt, by the number that the supervisor knows it by."""

    attempt: int
    path: str
    limit: int
    tenant: int | None = None


class DiskWatch:
    """Measures the folders of running attempts, each when its turn has come."""

    def __init__(
        self,
        running: Callable[[], Iterable[Folder]],
        on_exceeded: Callable[[int, DiskUsage], None],
    ) -> None:
        self._running = running
        self._on_exceeded = on_exceeded
        self._next_at: dict[int, float] = {}
        """When each folder is due."""
        self._served_at: dict[int | None, float] = {}
        """When a folder of each tenant was last measured."""

    async def run(self) -> None:
        """Measure until cancelled."""
        is_complete = True
        while True:
            await asyncio.sleep(INTERVAL if is_complete else MAX_PASS_TIME)
            is_complete = await self.measure_due()

    async def measure_due(self) -> bool:
        """Measure the folders whose turn has come; False means that some have to wait.

        Attempts that are new have their turn next time.
        """
        now = monotonic()
        running = [folder for folder in self._running() if folder.limit]
        due = [folder for folder in running if self._next_at.get(folder.attempt, now + 1) <= now]
        self._next_at = {
            folder.attempt: self._next_at.get(folder.attempt, now) for folder in running
        }
        tenants = {folder.tenant for folder in running}
        self._served_at = {one: at for one, at in self._served_at.items() if one in tenants}
        if not due:
            return True
        turns = take_turns(due, self._next_at, self._served_at)
        measured = await asyncio.to_thread(_measure_some, turns)
        for folder, usage, seconds in measured:
            self._next_at[folder.attempt] = now + seconds / MAX_TIME_SHARE
            self._served_at[folder.tenant] = now
            if usage.exceeds(folder.limit):
                self._on_exceeded(folder.attempt, usage)
        return len(measured) == len(due)


def take_turns(
    due: Iterable[Folder],
    next_at: Mapping[int, float],
    served_at: Mapping[int | None, float],
) -> list[Folder]:
    """Order folders so that each tenant has one, then each has another one, and so on.

    Tenants come first whose last turn is longest ago, and so do the folders of each.
    """
    rounds: Counter[int | None] = Counter()
    turns: list[tuple[int, float, int, Folder]] = []
    for folder in sorted(due, key=lambda one: next_at[one.attempt]):
        rounds[folder.tenant] += 1
        last = served_at.get(folder.tenant, float("-inf"))
        turns.append((rounds[folder.tenant], last, len(turns), folder))
    return [folder for *_, folder in sorted(turns)]


def _measure_some(folders: Iterable[Folder]) -> list[tuple[Folder, DiskUsage, float]]:
    """Return what folders hold, and the seconds that it took to find out, while there is time."""
    found: list[tuple[Folder, DiskUsage, float]] = []
    until = monotonic() + MAX_PASS_TIME
    for folder in folders:
        began = monotonic()
        if found and began >= until:
            break
        usage = measure(folder.path)
        found.append((folder, usage, monotonic() - began))
    return found
