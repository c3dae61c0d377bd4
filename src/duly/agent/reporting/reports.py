"""Sends the outcomes of attempts, and retries until each is acknowledged.

All pending reports leave in one request; those that arrive meanwhile leave in the next one. So
batches grow with the load, and a lone outcome does not wait. When many attempts end in quick
succession, reports are gathered first: a batch costs the server nearly the same whatever its size.

Decision: docs/adr/0006-finish-under-locks.md.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from duly import timers
from duly.agent.gateway import Backoff, Gateway
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Unauthenticated, Unavailable
from duly.model.task import Reason
from duly.wire import AttemptRef, AttemptReport, ReportRequest, ReportResponse

log = logging.getLogger(__name__)

MAX_BATCH_REPORTS = 500
MAX_BATCH_BYTES = 2**20
REQUEST_TIMEOUT_SECONDS = 15.0
FAILOVER_TIMEOUT_SECONDS = 2.5
"""Seconds after which the request is sent to another server, if there is one."""
BATCH_INTERVAL_SECONDS = 0.02
"""Seconds between two batches, unless half of the running attempts have ended before."""
LARGE_BATCH_REPORTS = 16
LARGE_BATCH_INTERVAL_SECONDS = 0.05
"""Seconds instead, once LARGE_BATCH_REPORTS are pending: where tasks end by the thousand, larger
batches cut the cost per report for server and database by a third."""


class ReportSender:
    """The reports that no server has acknowledged yet."""

    def __init__(
        self,
        gateway: Gateway,
        answered: Callable[[AttemptRef, bool], None],
        running: Callable[[], int],
    ) -> None:
        self._gateway = gateway
        self._answered = answered
        self._running = running
        self._pending: dict[AttemptRef, tuple[AttemptReport, float]] = {}
        self._nudged = asyncio.Event()
        self._enough = asyncio.Event()
        self._sent_at = float("-inf")
        self._most = MAX_BATCH_REPORTS

    def add(self, report: AttemptReport, ended_at: float | None) -> None:
        """Send `report` as soon as possible."""
        self._pending[report.ref] = report, monotonic() if ended_at is None else ended_at
        if 2 * len(self._pending) >= self._running():
            self._enough.set()
        self._nudged.set()

    def forget(self, ref: AttemptRef) -> None:
        """Drop the report of an attempt."""
        self._pending.pop(ref, None)

    async def run(self, incarnation: int) -> None:
        """Send until cancelled; raises Fenced once this incarnation is over."""
        backoff = Backoff()
        while True:
            if not self._pending:
                self._nudged.clear()
                await self._nudged.wait()
            await self._gather()
            batch = self._batch()
            try:
                await self._send(batch, incarnation)
            except (Fenced, Unauthenticated):
                raise
            except Unavailable as error:
                log.warning("cannot report", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
            except DulyError as error:
                log.error("reports refused", extra={"error": error.message, "reports": len(batch)})
                self._single_out(batch)
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                self._most = min(2 * self._most, MAX_BATCH_REPORTS)

    async def _gather(self) -> None:
        """Wait for more reports if the last batch has just left and many attempts are running."""
        await self._wait_until(self._sent_at + BATCH_INTERVAL_SECONDS)
        if len(self._pending) >= LARGE_BATCH_REPORTS:
            await self._wait_until(self._sent_at + LARGE_BATCH_INTERVAL_SECONDS)
        self._sent_at = monotonic()

    async def _wait_until(self, at: float) -> None:
        """Wait until `at`, or until half of the running attempts have ended."""
        left = at - monotonic()
        if left > 0 and 2 * len(self._pending) < self._running():
            self._enough.clear()
            await timers.wait_or_set(self._enough, left)

    def _batch(self) -> list[AttemptReport]:
        batch: list[AttemptReport] = []
        size = 0
        now = monotonic()
        for report, ended_at in islice(self._pending.values(), self._most):
            size += len(report.tail) + len(report.result or b"")
            if batch and size > MAX_BATCH_BYTES:
                break
            report.ended_ago = max(0.0, now - ended_at)
            batch.append(report)
        return batch

    async def _send(self, batch: list[AttemptReport], incarnation: int) -> None:
        message = ReportRequest(incarnation=incarnation, reports=batch)
        receipts = await self._gateway.call(
            "report",
            message,
            ReportResponse,
            timeout=REQUEST_TIMEOUT_SECONDS,
            failover_timeout=FAILOVER_TIMEOUT_SECONDS,
        )
        if len(receipts.accepted) != len(batch):
            raise Unavailable("The server answered another number of reports than we sent.")
        for report, accepted in zip(batch, receipts.accepted, strict=True):
            if self._pending.pop(report.ref, None) is not None:
                self._answered(report.ref, accepted)

    def _single_out(self, batch: list[AttemptReport]) -> None:
        """Halve the batch until the refused report is alone, then strip that report."""
        self._most = max(1, len(batch) // 2)
        if len(batch) == 1:
            report = batch[0]
            report.tail, report.result, report.usage, report.log_size = b"", None, None, 0
            code = report.reason.code if report.reason else "report_refused"
            report.reason = Reason(code, "The server refused the rest of its report.")
