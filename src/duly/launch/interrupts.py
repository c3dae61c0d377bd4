"""How a process is told to stop: signals, handled here and nowhere else.

The first Ctrl-C, SIGTERM or SIGHUP cancels the work, which then winds itself up in
order. The second one says that somebody is waiting for that.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What the signals have asked for so far."""

    def __init__(self) -> None:
        self.is_stopping = False
        self.hurry = asyncio.Event()
        self._work: asyncio.Task[Any] | None = None

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` until it ends or is interrupted; being interrupted is no error."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            self._work = group.create_task(work)
            for signum in STOP_SIGNALS:
                loop.add_signal_handler(signum, self._interrupt)
            try:
                await self._work
            except asyncio.CancelledError:
                if not self.is_stopping:
                    raise
            finally:
                for signum in STOP_SIGNALS:
                    loop.remove_signal_handler(signum)

    def _interrupt(self) -> None:
        if self.is_stopping:
            self.hurry.set()
        self.is_stopping = True
        if self._work and not self.hurry.is_set():
            self._work.cancel()
