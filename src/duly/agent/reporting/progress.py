"""Sends the progress of attempts to the servers, with a key for each attempt.

At most the newest report of each attempt per second (`coalescer.py`).
"""

import asyncio
import logging

import msgspec

from duly import timers
from duly.agent.gateway import Backoff, Gateway
from duly.agent.reporting.attempt_keys import AttemptKeys, NodeRefused
from duly.agent.reporting.coalescer import Coalescer
from duly.clock import monotonic
from duly.errors import DulyError, NotFound, Unavailable
from duly.model.progress import Progress
from duly.wire import AttemptRef

log = logging.getLogger(__name__)

PROGRESS_PATH = "/v1/attempt/progress"
REQUEST_TIMEOUT_SECONDS = 15.0


class ProgressSender:
    """The attempts that have reported progress, and their pending reports."""

    def __init__(self, gateway: Gateway, keys: AttemptKeys) -> None:
        self._gateway = gateway
        self._keys = keys
        self._coalescer = Coalescer()
        self._is_refused: dict[AttemptRef, bool] = {}
        """The attempts that have reported progress, and whether the servers refuse it."""
        self._nudged = asyncio.Event()

    def say(self, ref: AttemptRef, progress: Progress) -> None:
        """Queue a progress report, which a newer one may replace before it is sent."""
        is_refused = self._is_refused.setdefault(ref, False)
        if not is_refused and self._coalescer.say(ref, progress):
            self._nudged.set()

    def forget(self, ref: AttemptRef) -> None:
        """Drop an attempt: progress is shown only while it runs."""
        if self._is_refused.pop(ref, None) is not None:
            self._coalescer.forget(ref)
            self._keys.forget(ref)

    async def run(self) -> None:
        """Send until cancelled."""
        backoff = Backoff()
        while True:
            self._nudged.clear()
            wait = self._coalescer.wait(monotonic())
            if wait != 0.0:
                await timers.wait_for(self._nudged, wait)
                continue
            for ref, progress in self._coalescer.take(monotonic()):
                try:
                    await self._send(ref, progress)
                    backoff.reset()
                except Unavailable as error:
                    log.warning("cannot tell progress", extra={"error": error.message})
                    self._coalescer.put_back(ref, progress)
                    await asyncio.sleep(backoff.next())

    async def _send(self, ref: AttemptRef, progress: Progress) -> None:
        if self._is_refused.get(ref, True):
            return
        try:
            await self._put(await self._keys.of(ref), progress)
        except (Unavailable, NodeRefused):
            raise
        except DulyError as error:
            log.info("progress refused", extra={"task": ref.task, "error": error.message})
            # The attempt is over; or this server is older than the route, and another may have it.
            if ref in self._is_refused:
                self._is_refused[ref] = not isinstance(error, NotFound)

    async def _put(self, key: str, progress: Progress) -> None:
        body = msgspec.json.encode(progress)
        await self._gateway.put(PROGRESS_PATH, body, key=key, timeout=REQUEST_TIMEOUT_SECONDS)
