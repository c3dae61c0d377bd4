"""Ends attempts whose folders hold more than the disk space they were given.

The agent measures, and not the supervisor, because measuring waits for a disk. It is done in a
thread, in turns: a folder that takes long to count is counted less often, so that a task with very
many files costs the others nothing but its share of one thread.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from duly.agent.disk_usage import DiskUsage, measure
from duly.clock import monotonic

INTERVAL = 1.0
"""Seconds between two measurements of a folder, at least."""
MAX_TIME_SHARE = 0.1
"""The part of the time that measuring one folder may take."""


class Folder(NamedTuple):
    """The folder of a running attempt, by the number that the supervisor knows it by."""

    attempt: int
    path: str
    limit: int


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

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.measure_due()

    async def measure_due(self) -> None:
        """Measure the folders whose turn has come. Attempts that are new have theirs next time."""
        now = monotonic()
        running = [folder for folder in self._running() if folder.limit]
        due = [folder for folder in running if self._next_at.get(folder.attempt, now + 1) <= now]
        self._next_at = {
            folder.attempt: self._next_at.get(folder.attempt, now) for folder in running
        }
        if not due:
            return
        for folder, usage, seconds in await asyncio.to_thread(_measure_all, due):
            self._next_at[folder.attempt] = now + seconds / MAX_TIME_SHARE
            if usage.exceeds(folder.limit):
                self._on_exceeded(folder.attempt, usage)


def _measure_all(folders: Iterable[Folder]) -> list[tuple[Folder, DiskUsage, float]]:
    """Return what each folder holds, and the seconds that it took to find out."""
    found = []
    for folder in folders:
        began = monotonic()
        usage = measure(folder.path)
        found.append((folder, usage, monotonic() - began))
    return found
