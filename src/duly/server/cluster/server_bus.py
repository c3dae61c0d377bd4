"""Broadcasts hints between servers over PostgreSQL's LISTEN/NOTIFY.

A hint only shortens latency: a task submitted to a follower is placed at once instead of at the
leader's next poll. Delivery is best effort. Nothing waits for a hint, none is retried, and every
consumer also polls the database, so losing the channel costs latency and nothing else.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from duly.server.cluster import hints
from duly.server.cluster.hints import EMPTY_HINT, EVERYTHING, Hint
from duly.server.service import Service
from duly.store.connections.channel import Channel
from duly.store.database import Database

RECONNECT_INTERVAL = timedelta(seconds=2)
"""Also how often a server without hints to send checks whether it has peers."""
PEER_TIMEOUT = timedelta(seconds=10)
"""A server that has not sent a heartbeat for this long no longer counts as a peer."""
MIN_SEND_INTERVAL = timedelta(milliseconds=5)
"""NOTIFY takes a global lock at commit, so hints are coalesced for at least this long."""


class ServerBus(Service):
    """Sends this server's hints to its peers and dispatches theirs to local subscribers."""

    def __init__(self, database: Database) -> None:
        super().__init__(RECONNECT_INTERVAL)
        self._database = database
        self._channel: Channel | None = None
        self._has_peers = False
        self._pending = EMPTY_HINT
        self._handlers: list[Callable[[Hint], None]] = []

    def subscribe(self, handler: Callable[[Hint], None]) -> None:
        """Call `handler` for every hint received from a peer."""
        self._handlers.append(handler)

    def publish(self, hint: Hint) -> None:
        """Queue `hint` for the next message to the peers. Call it after the commit."""
        if self._has_peers and hint != EMPTY_HINT:
            self._pending |= hint
            self.nudge()

    def broadcast(self, hint: Hint) -> None:
        """Dispatch `hint` on this server, and publish it. Call it after the commit."""
        self._dispatch(hint)
        self.publish(hint)

    async def run(self) -> None:
        """Tick until cancelled, then disconnect."""
        try:
            await super().run()
        finally:
            self._disconnect()

    async def tick(self) -> bool:
        """Reconnect if the channel is closed, then send the pending hints in one message."""
        try:
            channel = await self._connected_channel()
            await self._send_pending(channel)
        except BaseException:
            self._disconnect()
            raise
        return False

    async def _send_pending(self, channel: Channel) -> None:
        if self._pending == EMPTY_HINT:
            self._has_peers = await channel.has_peers(PEER_TIMEOUT)
            return
        hint, self._pending = self._pending, EMPTY_HINT
        await channel.notify(hints.encode(hint))
        await asyncio.sleep(MIN_SEND_INTERVAL.total_seconds())

    async def _connected_channel(self) -> Channel:
        if self._channel is None or not self._channel.is_open:
            self._channel = await Channel.open(self._database, self._on_message, self.nudge)
            # Hints may have been missed while disconnected: tell subscribers to check everything.
            self._dispatch(EVERYTHING)
        return self._channel

    def _on_message(self, payload: str) -> None:
        self._dispatch(hints.decode(payload))

    def _dispatch(self, hint: Hint) -> None:
        for handler in self._handlers:
            handler(hint)

    def _disconnect(self) -> None:
        """Close the channel and drop the pending hints: every consumer polls anyway."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._has_peers = False
        self._pending = EMPTY_HINT
