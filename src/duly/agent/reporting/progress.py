"""Tells the servers how far attempts have come, under a key of each attempt's own.

The key is made when an attempt first says something, and registered with the node's key:
one call more for the few that speak, and none for the others. It never leaves this
process but as the bearer of those calls; the task does not know it.
"""

import asyncio
import logging
from dataclasses import dataclass, field

import msgspec

from duly import alarm
from duly.agent.coalescer import Coalescer
from duly.agent.gateway import Backoff, Gateway
from duly.clock import monotonic
from duly.errors import DulyError, NotFound, Unauthenticated, Unavailable
from duly.model import attempt_key
from duly.model.progress import Progress
from duly.wire import AttemptKey, AttemptRef

log = logging.getLogger(__name__)

PATH = "/v1/attempt/progress"
TIMEOUT = 15.0


@dataclass(slots=True)
class Voice:
    """What an attempt speaks with."""

    key: str | None = field(default=None, repr=False)
    """Known to the servers, once it is here."""
    is_refused: bool = False


class ProgressSender:
    """The attempts that have said something, and what is still to be told."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._news = Coalescer()
        self._voices: dict[AttemptRef, Voice] = {}
        self._nudged = asyncio.Event()

    def say(self, ref: AttemptRef, progress: Progress) -> None:
        """Tell the servers soon, or never if the attempt says something newer before."""
        voice = self._voices.setdefault(ref, Voice())
        if not voice.is_refused and self._news.say(ref, progress):
            self._nudged.set()

    def forget(self, ref: AttemptRef) -> None:
        """Say nothing more for an attempt: progress is only shown while it runs."""
        if self._voices.pop(ref, None) is not None:
            self._news.forget(ref)

    async def run(self) -> None:
        """Send until cancelled."""
        backoff = Backoff()
        while True:
            self._nudged.clear()
            wait = self._news.wait(monotonic())
            if wait != 0.0:
                await alarm.wait_for(self._nudged, wait)
                continue
            for ref, progress in self._news.take(monotonic()):
                try:
                    await self._send(ref, progress)
                    backoff.reset()
                except Unavailable as error:
                    log.warning("cannot tell progress", extra={"error": error.message})
                    self._news.put_back(ref, progress)
                    await asyncio.sleep(backoff.next())

    async def _send(self, ref: AttemptRef, progress: Progress) -> None:
        voice = self._voices.get(ref)
        if voice is None or voice.is_refused:
            return
        try:
            if voice.key is None:
                voice.key = await self._register(ref)
            await self._put(voice.key, progress)
        except (Unavailable, _NodeRefused):
            raise
        except DulyError as error:
            log.info("progress refused", extra={"task": ref.task, "error": error.message})
            # The attempt is over; or the server is older than the route, and another may not be.
            voice.is_refused = not isinstance(error, NotFound)

    async def _register(self, ref: AttemptRef) -> str:
        """Make a key; if the answer is lost, the next one takes the place of this."""
        key = attempt_key.mint(ref.task, ref.attempt, ref.token)
        message = AttemptKey(ref=ref, digest=attempt_key.digest(key))
        try:
            await self._gateway.send("attempt-key", message, timeout=TIMEOUT)
        except Unauthenticated as error:
            raise _NodeRefused(error.message) from error
        return key

    async def _put(self, key: str, progress: Progress) -> None:
        body = msgspec.json.encode(progress)
        await self._gateway.put(PATH, body, key=key, timeout=TIMEOUT)


class _NodeRefused(Unauthenticated):
    """It is the node's key that is not valid any more, not that of an attempt."""
