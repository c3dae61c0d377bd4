"""Lowers the limits of downstreams when attempts report that they were throttled.

Any server does that, under the lock of the limits; the leader sees it in its next snapshot of the
fleet. `duly.policy.budget.downstream` decides.
"""

from collections.abc import Iterable, Sequence

from duly import wire
from duly.model.queues.downstream import MAX_KEY_CHARS, MAX_RETRY_AFTER_SECONDS, THROTTLED_EXIT_CODE
from duly.model.task import Outcome
from duly.policy.budget.downstream import throttle
from duly.server.delivery.report_sanitizer import clamp, is_valid_ref
from duly.store.accounts import downstreams
from duly.store.accounts.downstreams import ThrottledCall
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database


class Throttling:
    """Records reports of throttling."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record_running(self, node_id: int, calls: Iterable[wire.ThrottledAttempt]) -> None:
        """Record what running attempts of a node have reported."""
        await self._record(
            node_id,
            [_call(call.ref, call.throttled) for call in calls if is_valid_ref(call.ref)],
        )

    async def record_ended(self, node_id: int, reports: Iterable[wire.AttemptReport]) -> None:
        """Record what attempts say about throttling as they end; call it before they have ended."""
        calls = []
        for report in reports:
            if report.throttled:
                calls += [_call(report.ref, throttled) for throttled in report.throttled]
            elif is_exit_throttled(report):
                calls.append(_call(report.ref, None))
        await self._record(node_id, calls)

    async def _record(self, node_id: int, calls: Sequence[ThrottledCall]) -> None:
        if not calls:
            return
        async with self._database.transaction(ConnectionClass.NODE) as conn:
            changed = [
                lowered
                for limit, at, retry_after in await downstreams.lock_throttled(conn, node_id, calls)
                if (lowered := throttle(limit, at, retry_after)) != limit
            ]
            if changed:
                await downstreams.store_throttled(conn, changed)


def is_exit_throttled(report: wire.AttemptReport) -> bool:
    """Return True if an attempt ended with the exit code that stands for throttling."""
    return report.outcome is Outcome.FAILED and report.exit_code == THROTTLED_EXIT_CODE


def _call(ref: wire.AttemptRef, throttled: wire.Throttled | None) -> ThrottledCall:
    if throttled is None:
        return ThrottledCall(ref.task, ref.attempt, ref.token, None, 0.0)
    key = throttled.key[:MAX_KEY_CHARS].replace("\0", "")
    seconds = clamp(throttled.retry_after, MAX_RETRY_AFTER_SECONDS)
    return ThrottledCall(ref.task, ref.attempt, ref.token, key, seconds)
