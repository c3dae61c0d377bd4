"""Renews the lease of an incarnation, and tells the servers what has changed on the node."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from duly import timers
from duly.agent.events import Renewed
from duly.agent.gateway import Backoff, Gateway
from duly.agent.limits.shortage import Shortage
from duly.clock import monotonic
from duly.duration import format_duration
from duly.errors import Unavailable
from duly.wire import AttemptRef, Heartbeat, HeartbeatResponse, JoinResponse

log = logging.getLogger(__name__)


class HeartbeatSender:
    """Sends a heartbeat per interval, and one as soon as something has changed."""

    def __init__(
        self,
        gateway: Gateway,
        held: Callable[[], list[AttemptRef]],
        offer: Callable[[], int | None],
        on_renewed: Callable[[Renewed], None],
    ) -> None:
        self._gateway = gateway
        self._held = held
        self._offer = offer
        self._on_renewed = on_renewed
        self._shortage = Shortage()
        self._nudged = asyncio.Event()

    def soon(self) -> None:
        """Send the next heartbeat now."""
        self._nudged.set()

    def lack(self, resource: str) -> None:
        """Tell the servers that the node is short of a resource, so that it gets no work."""
        if self._shortage.current(monotonic()) is None:
            log.error("this node is short of %s; it takes no tasks for a while", resource)
        self._shortage.begin(resource, monotonic())
        self.soon()

    async def run(self, joined: JoinResponse, stop: asyncio.Event) -> None:
        """Send until cancelled."""
        # At most the heartbeat interval: a heartbeat whose response was lost has renewed the
        # lease all the same.
        backoff = Backoff(joined.heartbeat_interval)
        failing_since: float | None = None
        while True:
            self._nudged.clear()
            sent_at = monotonic()
            message = Heartbeat(
                incarnation=joined.incarnation,
                held=self._held(),
                stopping=stop.is_set(),
                shortage=self._shortage.current(sent_at),
                slots=self._offer(),
            )
            try:
                renewed = await self._gateway.call(
                    "heartbeat",
                    message,
                    HeartbeatResponse,
                    timeout=joined.lease_ttl / 3,
                    failover_timeout=joined.lease_ttl / 6,
                )
            except Unavailable as error:
                failing_since = failing_since or sent_at
                log.warning("cannot renew the lease", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            if failing_since is not None:
                after = timedelta(seconds=round(monotonic() - failing_since))
                log.warning("a server answers again", extra={"after": format_duration(after)})
                failing_since = None
            self._on_renewed(Renewed(sent_at, renewed.ttl, tuple(renewed.stop)))
            pause = max(0.0, sent_at + joined.heartbeat_interval - monotonic())
            await timers.wait_for(self._nudged, pause)
