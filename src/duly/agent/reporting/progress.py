"""Sends the progress of attempts to the servers, with a key for each attempt.

The key is generated when an attempt first reports progress, and registered with the node's key: one
extra call for the few attempts that report, and none for the others. The key leaves this process
only as the bearer token of those calls; the task does not know it.
"""

import asyncio
import logging
from dataclasses import dataclass, field

import msgspec

from duly import timers
from duly.agent.gateway import Backoff, Gateway
from duly.agent.reporting.coalescer import Coalescer
from duly.clock import monotonic
from duly.errors import DulyError, NotFound, Unauthenticated, Unavailable
from duly.model import attempt_key
from duly.model.progress import Progress
from duly.wire import AttemptKeyRegistration, AttemptRef

log = logging.getLogger(__name__)

PROGRESS_PATH = "/v1/attempt/progress"
REQUEST_TIMEOUT_SECONDS = 15.0


@dataclass(slots=True)
class Registration:
    """The key of an attempt, and whether the servers refuse it."""

    key: str | None = field(default=None, repr=False)
    """None until the servers know it."""
    is_refused: bool = False


class ProgressSender:
    """The attempts that have reported progress, and their pending reports."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._coalescer = Coalescer()
        self._registrations: dict[AttemptRef, Registration] = {}
        self._nudged = asyncio.Event()

    def say(self, ref: AttemptRef, progress: Progress) -> None:
        """Queue a progress report, which a newer one may replace before it is sent."""
        registration = self._registrations.setdefault(ref, Registration())
        if not registration.is_refused and self._coalescer.say(ref, progress):
            self._nudged.set()

    def forget(self, ref: AttemptRef) -> None:
        """Drop an attempt: progress is shown only while it runs."""
        if self._registrations.pop(ref, None) is not None:
            self._coalescer.forget(ref)

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
        registration = self._registrations.get(ref)
        if registration is None or registration.is_refused:
            return
        try:
            if registration.key is None:
                registration.key = await self._register(ref)
            await self._put(registration.key, progress)
        except (Unavailable, _NodeRefused):
            raise
        except DulyError as error:
            log.info("progress refused", extra={"task": ref.task, "error": error.message})
            # The attempt is over; or this server is older than the route, and another may have it.
            registration.is_refused = not isinstance(error, NotFound)

    async def _register(self, ref: AttemptRef) -> str:
        """Generate and register a key; if the response is lost, the next key replaces it."""
        key = attempt_key.mint(ref.task, ref.attempt, ref.token)
        message = AttemptKeyRegistration(ref=ref, digest=attempt_key.digest(key))
        try:
            await self._gateway.send("attempt-key", message, timeout=REQUEST_TIMEOUT_SECONDS)
        except Unauthenticated as error:
            raise _NodeRefused(error.message) from error
        return key

    async def _put(self, key: str, progress: Progress) -> None:
        body = msgspec.json.encode(progress)
        await self._gateway.put(PROGRESS_PATH, body, key=key, timeout=REQUEST_TIMEOUT_SECONDS)


class _NodeRefused(Unauthenticated):
    """The node's key is no longer valid, as opposed to the key of an attempt."""
