"""The loop that components run in: one tick per interval, or sooner when nudged."""

import asyncio
import logging
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import ClassVar

from duly import clock, telemetry, timers
from duly.duration import format_duration
from duly.errors import Unavailable

log = logging.getLogger(__name__)


class Service(ABC):
    """Runs `tick` every `interval`, or sooner when `nudge` is called.

    An error in one tick is logged and the next tick runs as usual: every tick
    starts from the state of the database, so there is nothing to repair.
    """

    always_reads: ClassVar[bool] = False
    """Whether every tick reads the database, so that a tick that succeeds shows that it is back."""

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval
        self._nudged = asyncio.Event()
        self._unavailable_since: float | None = None
        self._is_finishing = False

    @property
    def interval(self) -> timedelta:
        """Return the longest time between two ticks."""
        return self._interval

    @abstractmethod
    async def tick(self) -> bool:
        """Do one pass; return True when there is more to do right away."""

    def nudge(self) -> None:
        """Request a tick now. Nudges during a tick are merged into one."""
        self._nudged.set()

    def finish(self) -> None:
        """Stop after the current tick."""
        self._is_finishing = True
        self._nudged.set()

    def pause(self) -> timedelta:
        """Return how long to wait for a nudge before the next tick."""
        return self._interval

    async def run(self) -> None:
        """Tick until `finish` is called or the task is cancelled."""
        name = type(self).__name__
        while not self._is_finishing:
            self._nudged.clear()
            has_more = False
            try:
                with telemetry.timed(telemetry.TICK_SECONDS.labels(name)):
                    has_more = await self.tick()
                self._log_available(name)
            except Unavailable as error:
                _raise_if_cancelled()
                self._log_unavailable(name, error)
            except Exception:
                _raise_if_cancelled()
                telemetry.TICKS_FAILED.labels(name).inc()
                log.exception("%s: tick failed", name)
                # Without a pause, a nudge that always fails would make the loop spin.
                await asyncio.sleep(0.1)
            if not has_more and not self._is_finishing:
                await timers.wait_or_set(self._nudged, self.pause().total_seconds())

    def _log_unavailable(self, name: str, error: Unavailable) -> None:
        """Log once that the database is unavailable, not in every tick until it is back."""
        telemetry.TICKS_FAILED.labels(name).inc()
        if self._unavailable_since is None:
            log.warning("%s tries again until it succeeds: %s", name, error)
            self._unavailable_since = clock.monotonic()

    def _log_available(self, name: str) -> None:
        if self._unavailable_since is not None and self.always_reads:
            log.warning("%s succeeds again", name, extra={"after": self._silence()})
        self._unavailable_since = None

    def _silence(self) -> str:
        since = self._unavailable_since or 0.0
        return format_duration(timedelta(seconds=round(clock.monotonic() - since)))


def _raise_if_cancelled() -> None:
    """Raise CancelledError if the error of a tick has replaced it.

    A connection whose statement is cancelled is closed, and may report only that it was lost.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
