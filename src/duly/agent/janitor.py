"""Removes workspaces that are too full to be removed in passing.

In one thread, one after the other: a task may leave a million files, and neither
the heartbeat nor the next start may wait for them.
"""

import asyncio
import logging
from pathlib import Path
from types import TracebackType

from duly.agent import workspace

log = logging.getLogger(__name__)


class Janitor:
    """A queue of folders to be removed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Path | None] = asyncio.Queue()
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
        self._queue.put_nowait(None)
        await self._group.__aexit__(kind, error, traceback)

    def remove(self, folder: Path) -> None:
        """Have `folder` removed as soon as there is time."""
        self._queue.put_nowait(folder)

    async def _run(self) -> None:
        while (folder := await self._queue.get()) is not None:
            try:
                await asyncio.to_thread(workspace.remove, folder)
            except OSError as error:
                log.warning("cannot remove a workspace", extra={"error": str(error)})
