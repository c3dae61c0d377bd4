"""A loop that does one thing again and again until it is stopped."""

import asyncio
import logging
from abc import ABC, abstractmethod
from datetime import timedelta

from duly import alarm, telemetry
from duly.errors import Unavailable

log = logging.getLogger(__name__)


class Service(ABC):
    """Runs `tick` every `interval`, or sooner when `nudge` is called.

    An error in one tick is logged and the next tick runs as usual: every tick
    starts from what the database says, so there is no state to repair.
    """

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval
        self._nudged = asyncio.Event()
        self._failing = False
        self._finishing = False

    @property
    def interval(self) -> timedelta:
        """Return how long it is at most from one tick to the next."""
        return self._interval

    @abstractmethod
    async def tick(self) -> bool:
        """Do one pass; return True when there is more to do right away."""

    def nudge(self) -> None:
        """Ask for a tick now. Nudges that come during a tick are merged into one."""
        self._nudged.set()

    def finish(self) -> None:
        """Let the tick that is under way be the last one."""
        self._finishing = True
        self._nudged.set()

    def pause(self) -> timedelta:
        """Return how long to wait for a nudge before the next tick."""
        return self._interval

    async def run(self) -> None:
        """Tick until told to finish, or cancelled."""
        name = type(self).__name__
        while not self._finishing:
            self._nudged.clear()
            more = False
            try:
                with telemetry.timed(telemetry.TICK_SECONDS.labels(name)):
                    more = await self.tick()
                self._failing = False
            except Unavailable as error:
                self._complain(name, error)
            except Exception:
                telemetry.TICKS_FAILED.labels(name).inc()
                log.exception("%s: tick failed", name)
                # Without a pause, an error that a nudge brings about could spin.
                await asyncio.sleep(0.1)
            if not more and not self._finishing:
                await self._rest()

    def _complain(self, name: str, error: Unavailable) -> None:
        """Say once that the database is away, not once for every tick until it is back."""
        telemetry.TICKS_FAILED.labels(name).inc()
        if not self._failing:
            log.warning("%s: %s", name, error)
        self._failing = True

    async def _rest(self) -> None:
        await alarm.wait(self._nudged, self.pause().total_seconds())
