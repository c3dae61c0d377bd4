"""Makes a node a member of the cluster: joins, and joins again after each incarnation."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from duly import timers
from duly.agent import identity
from duly.agent.gateway import Backoff, Gateway
from duly.agent.session import Session
from duly.clock import monotonic
from duly.errors import ConfigError, Forbidden, Unauthenticated, Unavailable
from duly.wire import JoinRequest, JoinResponse

log = logging.getLogger(__name__)

JOIN_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a node joins."""

    data: Path
    """The folder that has its identity."""
    describe: Callable[[str], JoinRequest]
    """Returns the request to join as the node with a key."""
    secret: str | None = field(repr=False)
    """Only needed for the first join; after that the node authenticates with its own key."""
    if_unknown: str
    """What to tell if it is needed and not there."""
    on_joined: Callable[[], None] | None = None
    """Called whenever a server has accepted this node."""

    async def serve(self, gateway: Gateway, session: Session, stop: asyncio.Event) -> int:
        """Join and serve, again for every incarnation that is over, until told to stop."""
        while True:
            sent_at, joined = await self._join(gateway, stop)
            if joined is None:
                return 0
            log.info("joined", extra={"node": joined.node, "incarnation": joined.incarnation})
            if self.on_joined:
                self.on_joined()
            if await session.serve(joined, sent_at, stop):
                return 0

    async def _join(
        self, gateway: Gateway, stop: asyncio.Event
    ) -> tuple[float, JoinResponse | None]:
        """Join as this node, or as a new one; None means that the node was told to stop."""
        backoff = Backoff()
        while not stop.is_set():
            sent_at = monotonic()
            try:
                return sent_at, await self._ask_to_join(gateway)
            except Unavailable as error:
                log.warning("cannot join", extra={"error": error.message})
            await timers.wait_for(stop, backoff.next())
        return 0.0, None

    async def _ask_to_join(self, gateway: Gateway) -> JoinResponse:
        saved = identity.ensure(self.data)
        message = self.describe(saved.key)
        refusal = ""
        for secret in _secrets(saved, self.secret):
            gateway.key = secret
            try:
                joined = await gateway.join(message, timeout=JOIN_TIMEOUT_SECONDS)
            except (Unauthenticated, Forbidden) as error:
                log.warning("not accepted", extra={"error": error.message})
                # Of both refusals, that of the given secret is the newer one's.
                if secret == self.secret or not self.secret:
                    refusal = error.message
                continue
            gateway.key = saved.key
            if joined.node != saved.node:
                identity.save(self.data, identity.Identity(joined.node, saved.key))
            return joined
        if saved.node is None and not self.secret:
            refusal = self.if_unknown
        raise ConfigError(f"No server accepts this node. {refusal}")


def _secrets(saved: identity.Identity, given: str | None) -> list[str]:
    """Return the secrets to try, likeliest first.

    A first join whose response was lost has registered the key, and a join token may have expired.
    """
    others = [given] if given else []
    return [*others, saved.key] if saved.node is None else [saved.key, *others]
