"""Tells the servers which attempts have not begun, because what they need is on its way.

Without it the servers would count the time that is spent here as that of the task, and have it
killed too early. Most attempts have begun before anything is told of them.
"""

import asyncio
import logging

from duly.agent.gateway import Backoff, Gateway
from duly.clock import monotonic
from duly.errors import DulyError, Unauthenticated, Unavailable
from duly.wire import AttemptRef, Preparing

log = logging.getLogger(__name__)

FIRST_AFTER = 2.0
"""Seconds that the servers do not count anyway, and after which an attempt is first told of."""
EVERY = 20.0
"""Seconds until it is told of again; each time it is given a minute more."""
TIMEOUT = 15.0


class PreparingSender:
    """The attempts that have not begun, and when each is to be told of next."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._due: dict[AttemptRef, float] = {}
        self._nudged = asyncio.Event()

    def begin(self, ref: AttemptRef) -> None:
        """Tell of an attempt from now on, if it takes long."""
        self._due[ref] = monotonic() + FIRST_AFTER
        self._nudged.set()

    def end(self, ref: AttemptRef) -> None:
        """Tell no more of an attempt: it begins, or never will."""
        self._due.pop(ref, None)

    async def run(self) -> None:
        """Send until cancelled."""
        backoff = Backoff()
        while True:
            while not self._due:
                self._nudged.clear()
                await self._nudged.wait()
            await asyncio.sleep(max(0.0, min(self._due.values()) - monotonic()))
            try:
                await self._send()
                backoff.reset()
            except Unavailable as error:
                log.warning("cannot tell what is being prepared", extra={"error": error.message})
                await asyncio.sleep(backoff.next())

    async def _send(self) -> None:
        now = monotonic()
        refs = [ref for ref, due in self._due.items() if due <= now]
        if not refs:
            return
        try:
            await self._gateway.send("preparing", Preparing(refs=refs), timeout=TIMEOUT)
        except (Unavailable, Unauthenticated):
            raise
        except DulyError as error:
            # A server older than the route; another may not be.
            log.info("what is being prepared was refused", extra={"error": error.message})
        for ref in refs:
            if ref in self._due:
                self._due[ref] = now + EVERY
