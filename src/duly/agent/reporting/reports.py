"""Sends the outcomes of attempts, again and again until each has been answered.

Everything that is due leaves in one request; what comes up meanwhile leaves in the
next one. So the batches grow with the load, and a lone outcome does not wait. Of many
that end one after the other, some are gathered first: a batch costs the server nearly
the same whatever is in it.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from duly import alarm
from duly.agent.gateway import Backoff, Gateway
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Unauthenticated, Unavailable
from duly.model.task import Reason
from duly.wire import AttemptRef, AttemptReport, Receipts, Reports

log = logging.getLogger(__name__)

MOST_REPORTS = 500
MOST_BYTES = 2**20
TIMEOUT = 15.0
SOON = 2.5
"""Seconds after which another server is asked, if there is one."""
GATHER = 0.02
"""Seconds from one batch to the next, unless half of what runs has ended before."""
MANY = 16
LONGER = 0.05
"""Seconds instead, once so many have ended: where tasks end by the thousand, larger batches
take a third off what each of them costs server and database."""


class ReportSender:
    """The reports that no server has answered yet."""

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
        self._most = MOST_REPORTS

    def add(self, report: AttemptReport, ended_at: float | None) -> None:
        """Send `report` as soon as possible."""
        self._pending[report.ref] = report, monotonic() if ended_at is None else ended_at
        if 2 * len(self._pending) >= self._running():
            self._enough.set()
        self._nudged.set()

    def forget(self, ref: AttemptRef) -> None:
        """Send nothing more about an attempt."""
        self._pending.pop(ref, None)

    async def run(self, incarnation: int) -> None:
        """Send until cancelled; raises Fenced when this incarnation is over."""
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
                self._most = min(2 * self._most, MOST_REPORTS)

    async def _gather(self) -> None:
        """Wait for more to end, if the last batch has only just left and much is running."""
        await self._wait_until(self._sent_at + GATHER)
        if len(self._pending) >= MANY:
            await self._wait_until(self._sent_at + LONGER)
        self._sent_at = monotonic()

    async def _wait_until(self, at: float) -> None:
        """Wait until then, or until half of what runs has ended."""
        left = at - monotonic()
        if left > 0 and 2 * len(self._pending) < self._running():
            self._enough.clear()
            await alarm.wait(self._enough, left)

    def _batch(self) -> list[AttemptReport]:
        batch: list[AttemptReport] = []
        size = 0
        now = monotonic()
        for report, ended_at in islice(self._pending.values(), self._most):
            size += len(report.tail) + len(report.result or b"")
            if batch and size > MOST_BYTES:
                break
            report.ended_ago = max(0.0, now - ended_at)
            batch.append(report)
        return batch

    async def _send(self, batch: list[AttemptReport], incarnation: int) -> None:
        message = Reports(incarnation=incarnation, reports=batch)
        receipts = await self._gateway.call("report", message, Receipts, timeout=TIMEOUT, soon=SOON)
        if len(receipts.accepted) != len(batch):
            raise Unavailable("The server answered another number of reports than we sent.")
        for report, accepted in zip(batch, receipts.accepted, strict=True):
            if self._pending.pop(report.ref, None) is not None:
                self._answered(report.ref, accepted)

    def _single_out(self, batch: list[AttemptReport]) -> None:
        """Make the batch smaller until the report that is refused stands alone; then strip it."""
        self._most = max(1, len(batch) // 2)
        if len(batch) == 1:
            report = batch[0]
            report.tail, report.result, report.usage, report.log_size = b"", None, None, 0
            code = report.reason.code if report.reason else "report_refused"
            report.reason = Reason(code, "the rest of its report was refused by the server")
