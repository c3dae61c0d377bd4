"""Handles stop signals; no other module does.

The first SIGINT, SIGTERM or SIGHUP cancels the work, which shuts down in order, and decides the
exit code: 130 after Ctrl-C, as shells expect, and 0 after the others, as service managers do. If
there is an `on_repeat`, the next signal calls it, to say what the shutdown waits for. The one after
that sets `hurry`, to skip graceful waits. A process started with SIGHUP ignored, as by nohup, keeps
running when its terminal closes.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from duly.errors import Unavailable

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 128 + signal.SIGINT
"""The exit code after Ctrl-C."""

Callback = Callable[[], None] | None


class Signals:
    """The stop signals received so far; `hurry` is set before `on_hurry` is called."""

    def __init__(
        self, on_stop: Callback = None, on_repeat: Callback = None, on_hurry: Callback = None
    ) -> None:
        self._on_stop = on_stop
        self._on_repeat = on_repeat
        self._on_hurry = on_hurry
        self._exit_code = 0
        self.is_stopping = False
        self.hurry = asyncio.Event()
        self._work: asyncio.Task[Any] | None = None

    async def run(self, work: Awaitable[None]) -> int:
        """Run `work` until it ends or a signal cancels it; return the exit code."""
        self._work = asyncio.current_task()
        loop = asyncio.get_running_loop()
        handled = [signum for signum in STOP_SIGNALS if not _is_ignored(signum)]
        for signum in handled:
            loop.add_signal_handler(signum, self._on_signal, signum)
        try:
            await work
        except asyncio.CancelledError:
            if not self.is_stopping or self._work is None:
                raise
            self._work.uncancel()
        except (Unavailable, ExceptionGroup) as error:
            # A cancelled statement may end as a lost connection rather than as a cancellation.
            if not self.is_stopping or not _is_unavailable(error):
                raise
        finally:
            for signum in handled:
                loop.remove_signal_handler(signum)
        return self._exit_code

    def _on_signal(self, signum: signal.Signals) -> None:
        if not self.is_stopping:
            self._stop(signum)
        elif self._on_repeat:
            on_repeat, self._on_repeat = self._on_repeat, None
            on_repeat()
        elif not self.hurry.is_set():
            self.hurry.set()
            _call(self._on_hurry)

    def _stop(self, signum: signal.Signals) -> None:
        if self._work:
            self.is_stopping = True
            self._exit_code = INTERRUPTED if signum == signal.SIGINT else 0
            _call(self._on_stop)
            self._work.cancel()


def _call(callback: Callback) -> None:
    if callback:
        callback()


def _is_ignored(signum: signal.Signals) -> bool:
    return signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN


def _is_unavailable(error: Exception) -> bool:
    """Return True for Unavailable, also several of them in a group."""
    if isinstance(error, ExceptionGroup):
        return error.split(Unavailable)[1] is None
    return isinstance(error, Unavailable)
