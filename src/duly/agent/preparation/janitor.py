"""Removes the workspaces of attempts that have ended.

One thread removes them in batches: a task may leave a million files, and even an empty folder takes
a while on a busy disk. Neither the heartbeat nor the next start may wait for that.
"""

import asyncio
import logging
from types import TracebackType

from duly.agent.preparation import workspace

log = logging.getLogger(__name__)


class Janitor:
    """A queue of folders to remove, and the task that removes them."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._nudged = asyncio.Event()
        self._closing = False
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> "Janitor":
        await self._group.__aenter__()
        self._group.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        self._nudged.set()
        await self._group.__aexit__(kind, error, traceback)

    def remove(self, folder: str) -> None:
        """Queue `folder` for removal."""
        self._waiting.append(folder)
        self._nudged.set()

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            await self._nudged.wait()
            self._nudged.clear()
            batch, self._waiting = self._waiting, []
            if batch:
                await asyncio.to_thread(_remove_all, batch)


def _remove_all(folders: list[str]) -> None:
    for folder in folders:
        try:
            workspace.remove(folder)
        except OSError as error:
            log.warning("cannot remove a workspace", extra={"error": str(error)})
