"""Watches that the object store is still the one of the database.

A shared folder may be unmounted and a bucket emptied while the server runs. Its next write would
create the folder anew, beside the mount, and what was there before would seem to be lost. So the
mark of the store is checked every few seconds, and before a write to a folder. While the store is
not the right one, writes and deletions are refused as unavailable, and the server is not ready.
"""

import asyncio
import logging
from datetime import timedelta
from uuid import UUID

from duly.errors import Unavailable
from duly.server.artifacts.store_access import (
    STORE_ERRORS,
    first_line,
    folder_of,
    open_store,
)
from duly.server.artifacts.store_mark import NAME, read_mark
from duly.server.service import Service

log = logging.getLogger(__name__)
CHECK_INTERVAL = timedelta(seconds=5)
CHECK_TIMEOUT_SECONDS = 10


class StoreGuard(Service):
    """Compares the mark of the object store with the id that the database has for it."""

    def __init__(self, store_url: str, store_id: UUID | None) -> None:
        """Watch the store at `store_url`; without a `store_id` any is the right one."""
        super().__init__(CHECK_INTERVAL)
        self._store = open_store(store_url)
        self._store_id = store_id
        self._is_folder = folder_of(store_url) is not None
        self.problem: str | None = None

    async def tick(self) -> bool:
        """Check the mark, and log when the store is gone or back."""
        problem = await self._find_problem() if self._store_id is not None else None
        if problem is not None and self.problem is None:
            log.error("logs and artifacts are refused: %s", problem)
        elif problem is None and self.problem is not None:
            log.warning("the object store is back")
        self.problem = problem
        return False

    async def confirm(self) -> None:
        """Raise Unavailable if the store is not the right one.

        A folder is checked each time, as a write would create it anew; a bucket by `tick` alone.
        """
        if self._is_folder:
            await self.tick()
        if self.problem is not None:
            raise Unavailable(self.problem)

    async def _find_problem(self) -> str | None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                mark = await read_mark(self._store)
        except TimeoutError:
            return f"The object store did not respond within {CHECK_TIMEOUT_SECONDS} s."
        except ValueError:
            return f"The object store's {NAME} is damaged. Restore it from a backup."
        except STORE_ERRORS as error:
            return f"The object store cannot be read: {first_line(error)}."
        if mark is None:
            return f"The object store is gone: it has no {NAME}. Is its folder mounted?"
        if mark != self._store_id:
            return f"The object store is that of another database, as its {NAME} says."
        return None
