"""Tells the servers which attempts are still being prepared.

Otherwise the servers would count the preparation as execution time of the task, and have it killed
too early. Most attempts have begun before the first notice is due.
"""

import asyncio
import logging

from duly.agent.gateway import Backoff, Gateway
from duly.clock import monotonic
from duly.errors import DulyError, Unauthenticated, Unavailable
from duly.wire import AttemptRef, PreparingReport

log = logging.getLogger(__name__)

FIRST_NOTICE_SECONDS = 2.0
"""Seconds until the first notice about an attempt, which the servers do not count anyway."""
NOTICE_INTERVAL_SECONDS = 20.0
"""Seconds until the next notice; each notice grants the attempt another minute."""
REQUEST_TIMEOUT_SECONDS = 15.0


class PreparingSender:
    """The attempts that are being prepared, and when the next notice about each is due."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._due: dict[AttemptRef, float] = {}
        self._nudged = asyncio.Event()

    def begin(self, ref: AttemptRef) -> None:
        """Send notices about an attempt from now on, if its preparation takes long."""
        self._due[ref] = monotonic() + FIRST_NOTICE_SECONDS
        self._nudged.set()

    def end(self, ref: AttemptRef) -> None:
        """Send no more notices about an attempt: it begins, or never will."""
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
            await self._gateway.send(
                "preparing", PreparingReport(refs=refs), timeout=REQUEST_TIMEOUT_SECONDS
            )
        except (Unavailable, Unauthenticated):
            raise
        except DulyError as error:
            # This server is older than the route; another server may have it.
            log.info("what is being prepared was refused", extra={"error": error.message})
        for ref in refs:
            if ref in self._due:
                self._due[ref] = now + NOTICE_INTERVAL_SECONDS
