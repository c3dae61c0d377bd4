"""Follows the source files of the application, for development (`duly worker --reload`).

New processes import the files as they are now, and replace the old ones once they are warm. If the
application knows other functions then, the worker joins anew: what runs is finished first.
"""

import asyncio
import logging
from pathlib import Path

from duly.agent.pool.function_executor import FunctionExecutor
from duly.agent.session import Session

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5


class Reloader:
    """What the application looked like when its processes were started."""

    def __init__(self, executor: FunctionExecutor, session: Session) -> None:
        self._executor = executor
        self._pool = executor.pool
        self._session = session
        self._seen = _look(self._pool.files)
        self._joined: frozenset[str] = frozenset()

    def joining(self) -> frozenset[str]:
        """Return the functions to join with."""
        self._joined = self._pool.functions
        self._executor.is_paused = False
        return self._joined

    async def run(self) -> None:
        """Look until cancelled; at once over unless files are to be followed."""
        while self._pool.options.reload:
            await asyncio.sleep(LOOK_SECONDS)
            found = _look({*self._pool.files, *self._seen})
            if found != self._seen:
                self._seen = found
                log.warning("the application has changed; starting new processes")
                self._pool.reload()
            if self._pool.functions != self._joined and self._joined:
                self._executor.is_paused = True
                self._session.rejoin()


def _look(files: list[str] | set[str]) -> dict[str, int]:
    """Return when each file was changed last; 0 if it is gone."""
    found = {}
    for file in files:
        path = Path(file)
        found[file] = path.stat().st_mtime_ns if path.exists() else 0
    return found
