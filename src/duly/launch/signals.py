"""Handles stop signals; no other module does.

The first SIGINT, SIGTERM or SIGHUP cancels the work, which shuts down in order. The second one
sets `hurry`, to skip graceful waits. A process started with SIGHUP ignored, as by nohup, keeps
running when its terminal closes.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """The stop signals received so far; `on_stop` is called at the first, `on_hurry` at the second.

    `hurry` is set before `on_hurry` is called.
    """

    def __init__(
        self,
        on_stop: Callable[[], None] | None = None,
        on_hurry: Callable[[], None] | None = None,
    ) -> None:
        self._on_stop = on_stop
        self._on_hurry = on_hurry
        self.is_stopping = False
        self.hurry = asyncio.Event()
        self._work: asyncio.Task[Any] | None = None

    async def run(self, work: Awaitable[None]) -> None:
        """Run `work` until it ends or a signal cancels it, which is not an error."""
        self._work = asyncio.current_task()
        loop = asyncio.get_running_loop()
        handled = [signum for signum in STOP_SIGNALS if not _is_ignored(signum)]
        for signum in handled:
            loop.add_signal_handler(signum, self._interrupt)
        try:
            await work
        except asyncio.CancelledError:
            if not self.is_stopping or self._work is None:
                raise
            self._work.uncancel()
        finally:
            for signum in handled:
                loop.remove_signal_handler(signum)

    def _interrupt(self) -> None:
        if self.is_stopping:
            if not self.hurry.is_set():
                self.hurry.set()
                if self._on_hurry:
                    self._on_hurry()
        elif self._work:
            self.is_stopping = True
            if self._on_stop:
                self._on_stop()
            self._work.cancel()


def _is_ignored(signum: signal.Signals) -> bool:
    return signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN
