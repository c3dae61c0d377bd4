"""How a process is told to stop: signals, handled here and nowhere else.

The first Ctrl-C, SIGTERM or SIGHUP cancels the work, which then winds itself up in
order. The second one says that somebody is waiting for that. Who was started with
SIGHUP ignored, as by nohup, goes on when the terminal is closed.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What the signals have asked for so far; `on_stop` is called at the first of them."""

    def __init__(self, on_stop: Callable[[], None] | None = None) -> None:
        self._on_stop = on_stop
        self.is_stopping = False
        self.hurry = asyncio.Event()
        self._work: asyncio.Task[Any] | None = None

    async def run(self, work: Awaitable[None]) -> None:
        """Do `work` until it ends or is interrupted; being interrupted is no error."""
        self._work = asyncio.current_task()
        loop = asyncio.get_running_loop()
        heard = [one for one in STOP_SIGNALS if not _is_to_be_ignored(one)]
        for signum in heard:
            loop.add_signal_handler(signum, self._interrupt)
        try:
            await work
        except asyncio.CancelledError:
            if not self.is_stopping or self._work is None:
                raise
            self._work.uncancel()
        finally:
            for signum in heard:
                loop.remove_signal_handler(signum)

    def _interrupt(self) -> None:
        if self.is_stopping:
            self.hurry.set()
        elif self._work:
            self.is_stopping = True
            if self._on_stop:
                self._on_stop()
            self._work.cancel()


def _is_to_be_ignored(signum: signal.Signals) -> bool:
    return signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN
