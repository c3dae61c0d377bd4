"""Sends the output of attempts to the servers, while they run and when they end.

While an attempt runs, new output is sent about every second, so that it can be followed. When the
attempt ends, all but the tail is sent before the report, which carries the tail: an attempt with
little output costs no request of its own. Chunks are sent round-robin by tenant, so that many
attempts with much output do not delay the reports of other tenants.
"""

import asyncio
import logging
from collections.abc import Callable

from duly.agent.gateway import Backoff, Gateway
from duly.agent.local_attempt import LocalAttempt
from duly.clock import monotonic
from duly.errors import DulyError, Unavailable
from duly.wire import MAX_LOG_TAIL_BYTES, AttemptRef, LogChunk

log = logging.getLogger(__name__)

MAX_CHUNK_BYTES = 256 * 1024
REQUEST_TIMEOUT_SECONDS = 30.0
MAX_REPORT_DELAY_SECONDS = 30.0
"""Seconds after the end of an attempt for which its report waits for its log."""


class LogSender:
    """The output that has been written but not yet sent."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._pending: dict[AttemptRef, LocalAttempt] = {}
        self._sent: dict[AttemptRef, int] = {}
        self._done: dict[AttemptRef, Callable[[], None]] = {}
        self._nudged = asyncio.Event()

    def written(self, attempt: LocalAttempt, size: int) -> None:
        """Record that a running attempt has written `size` bytes so far."""
        attempt.log_size = size
        self._pending[attempt.ref] = attempt
        self._nudged.set()

    def finish(self, attempt: LocalAttempt, done: Callable[[], None]) -> None:
        """Send the output that the report will not carry, then call `done`."""
        if attempt.log is not None or self._end(attempt) <= self._sent.get(attempt.ref, 0):
            done()
            return
        self._done[attempt.ref] = done
        self._pending[attempt.ref] = attempt
        self._nudged.set()

    def forget(self, ref: AttemptRef) -> None:
        """Drop the unsent output of an attempt."""
        self._pending.pop(ref, None)
        self._sent.pop(ref, None)
        self._done.pop(ref, None)

    async def run(self, incarnation: int) -> None:
        """Send until cancelled: round-robin by tenant, and by attempt within a tenant."""
        backoff = Backoff()
        while True:
            if not self._pending:
                self._nudged.clear()
                await self._nudged.wait()
            for attempt in self._next_of_each_tenant():
                try:
                    await self._send_chunk(attempt, incarnation)
                    backoff.reset()
                except Unavailable as error:
                    log.warning("cannot send logs", extra={"error": error.message})
                    self._lose_patience()
                    await asyncio.sleep(backoff.next())
                except DulyError as error:
                    # Refused: the attempt is no longer ours, or its log is full.
                    log.info("log refused", extra={"error": error.message})
                    self._settle(attempt.ref)

    def _next_of_each_tenant(self) -> list[LocalAttempt]:
        """Return one attempt of each tenant; the tenant's other attempts come first next time."""
        first: dict[int | None, LocalAttempt] = {}
        for attempt in self._pending.values():
            first.setdefault(attempt.tenant, attempt)
        for attempt in first.values():
            self._pending[attempt.ref] = self._pending.pop(attempt.ref)
        return list(first.values())

    async def _send_chunk(self, attempt: LocalAttempt, incarnation: int) -> None:
        offset = self._sent.get(attempt.ref, 0)
        size = min(self._end(attempt) - offset, MAX_CHUNK_BYTES)
        data = attempt.read_log(offset, size) if size > 0 else b""
        if data:
            chunk = LogChunk(incarnation=incarnation, ref=attempt.ref, offset=offset, data=data)
            await self._gateway.send("logs", chunk, timeout=REQUEST_TIMEOUT_SECONDS)
            if attempt.ref in self._pending:
                self._sent[attempt.ref] = offset = offset + len(data)
        if not data or offset >= self._end(attempt):
            self._settle(attempt.ref)

    def _end(self, attempt: LocalAttempt) -> int:
        """Return the offset up to which the log is sent: all of it while the attempt runs."""
        return attempt.log_size - (MAX_LOG_TAIL_BYTES if attempt.ended_at is not None else 0)

    def _settle(self, ref: AttemptRef) -> None:
        self._pending.pop(ref, None)
        done = self._done.pop(ref, None)
        if done is not None:
            done()

    def _lose_patience(self) -> None:
        """Release the reports of attempts whose log is overdue: an outcome matters more."""
        now = monotonic()
        for ref, attempt in list(self._pending.items()):
            if attempt.ended_at is not None and now - attempt.ended_at > MAX_REPORT_DELAY_SECONDS:
                self._settle(ref)
