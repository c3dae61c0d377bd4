"""Sends what attempts write to the servers, while they run and at their end.

While an attempt runs, what is new leaves about every second, so that it can be
followed. At its end, all but the tail leaves before the report, which carries the
tail. So an attempt with little to say costs no request of its own. Chunks are sent round-robin by
tenant: many attempts with much to say do not hold up the reports of another tenant's.
"""

import asyncio
import logging
from collections.abc import Callable

from duly.agent.executor import Local, read_spool
from duly.agent.gateway import Backoff, Gateway
from duly.clock import monotonic
from duly.errors import DulyError, Unavailable
from duly.wire import TAIL_BYTES, AttemptRef, LogChunk

log = logging.getLogger(__name__)

CHUNK = 256 * 1024
TIMEOUT = 30.0
PATIENCE = 30.0
"""Seconds after its end for which an attempt's report waits for its log."""


class LogSender:
    """What has been written and not yet been sent."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._pending: dict[AttemptRef, Local] = {}
        self._sent: dict[AttemptRef, int] = {}
        self._done: dict[AttemptRef, Callable[[], None]] = {}
        self._nudged = asyncio.Event()

    def written(self, local: Local, size: int) -> None:
        """Take note that a running attempt has written `size` bytes by now."""
        local.log_size = size
        self._pending[local.ref] = local
        self._nudged.set()

    def finish(self, local: Local, done: Callable[[], None]) -> None:
        """Send what the report will not carry, then call `done`."""
        if local.log is not None or self._end(local) <= self._sent.get(local.ref, 0):
            done()
            return
        self._done[local.ref] = done
        self._pending[local.ref] = local
        self._nudged.set()

    def forget(self, ref: AttemptRef) -> None:
        """Send nothing more of an attempt."""
        self._pending.pop(ref, None)
        self._sent.pop(ref, None)
        self._done.pop(ref, None)

    async def run(self, incarnation: int) -> None:
        """Send until cancelled: one chunk of each tenant in turn, of its attempts in turn."""
        backoff = Backoff()
        while True:
            if not self._pending:
                self._nudged.clear()
                await self._nudged.wait()
            for local in self._next_of_each_tenant():
                try:
                    await self._send_chunk(local, incarnation)
                    backoff.reset()
                except Unavailable as error:
                    log.warning("cannot send logs", extra={"error": error.message})
                    self._lose_patience()
                    await asyncio.sleep(backoff.next())
                except DulyError as error:
                    # Refused: the attempt is not ours any more, or its log is full.
                    log.info("log refused", extra={"error": error.message})
                    self._settle(local.ref)

    def _next_of_each_tenant(self) -> list[Local]:
        """Return an attempt of each tenant; its others come first next time."""
        first: dict[int | None, Local] = {}
        for local in self._pending.values():
            first.setdefault(local.tenant, local)
        for local in first.values():
            self._pending[local.ref] = self._pending.pop(local.ref)
        return list(first.values())

    async def _send_chunk(self, local: Local, incarnation: int) -> None:
        offset = self._sent.get(local.ref, 0)
        size = min(self._end(local) - offset, CHUNK)
        data = read_spool(local.spool, offset, size) if size > 0 else b""
        if data:
            chunk = LogChunk(incarnation=incarnation, ref=local.ref, offset=offset, data=data)
            await self._gateway.send("logs", chunk, timeout=TIMEOUT)
            if local.ref in self._pending:
                self._sent[local.ref] = offset = offset + len(data)
        if not data or offset >= self._end(local):
            self._settle(local.ref)

    def _end(self, local: Local) -> int:
        """Return up to where the log is to be sent: all of it while it grows."""
        return local.log_size - (TAIL_BYTES if local.ended_at is not None else 0)

    def _settle(self, ref: AttemptRef) -> None:
        self._pending.pop(ref, None)
        done = self._done.pop(ref, None)
        if done is not None:
            done()

    def _lose_patience(self) -> None:
        """Let the reports go whose logs cannot be sent: an end matters more than its log."""
        now = monotonic()
        for ref, local in list(self._pending.items()):
            if local.ended_at is not None and now - local.ended_at > PATIENCE:
                self._settle(ref)
