"""What becomes of a task when an attempt of it has ended, as the store wants it.

The retry policy decides; a success that nothing depends on needs no decision.
"""

from datetime import datetime, timedelta
from random import Random

import msgspec

from duly import wire
from duly.config import Settings
from duly.model.task import NO_LOST_STARTS, LostStarts, Reason, Status
from duly.policy import graph_order, retry
from duly.policy.retry import Cancel, DeadLetter, Finish, Retry, RetryPolicy
from duly.store.leases import Ended, Held, Succeeded


class Endings:
    """Turns what is reported of attempts into what the store writes."""

    def __init__(self, settings: Settings, dice: Random) -> None:
        self._settings = settings
        self._dice = dice

    def succeeded(self, report: wire.AttemptReport) -> Succeeded:
        """Put a success as the store wants it, which finds out whether it counts."""
        ref, (result, reason) = report.ref, self._result(report)
        return Succeeded(
            ref.task,
            ref.attempt,
            ref.token,
            report.exit_code,
            report.ran,
            report.ended_ago,
            report.usage,
            report.log_size,
            report.tail,
            result,
            reason,
        )

    def decide(
        self,
        held: Held,
        report: wire.AttemptReport,
        at: datetime,
        lost_starts: LostStarts = NO_LOST_STARTS,
    ) -> Ended:
        """Decide what becomes of a task, and put it as the store wants it."""
        tally = retry.count(held.tally, report.outcome)
        decision = retry.decide(
            self._policy(held),
            report.outcome,
            tally,
            lost_starts=lost_starts if report.ran is None else NO_LOST_STARTS,
            is_cancelled=held.cancel_requested_at is not None,
            now=at,
            jitter=self._dice.random(),
        )
        status, ready_at, start_by, task_reason = _next(decision, held, report.reason, at)
        result = None
        if status is Status.DONE:
            result, task_reason = self._result(report)
        finished_at = max(held.leased_at, at - timedelta(seconds=report.ended_ago))
        started_at = None
        if report.ran is not None:
            started_at = max(held.leased_at, finished_at - timedelta(seconds=report.ran))
        return Ended(
            held=held,
            outcome=report.outcome,
            exit_code=report.exit_code,
            reason=report.reason,
            started_at=started_at,
            finished_at=finished_at,
            usage=report.usage,
            log_size=report.log_size,
            log_tail=report.tail,
            status=status,
            ready_at=ready_at,
            start_by=start_by,
            tally=tally,
            result=result,
            task_reason=task_reason,
        )

    def _policy(self, held: Held) -> RetryPolicy:
        settings = self._settings.retries
        return RetryPolicy(
            max_attempts=held.max_attempts,
            on_lost=held.on_lost,
            base_delay=settings.base_delay,
            max_delay=settings.max_delay,
            max_losses=settings.max_losses,
            max_lost_starts=settings.max_lost_starts,
        )

    def _result(self, report: wire.AttemptReport) -> tuple[str | None, Reason | None]:
        """Return the result as text, or why it is not kept; neither when there is none."""
        if report.result is None:
            return None, None
        if not report.result:
            return None, _not_kept("it is no plain file that can be read")
        limit = self._settings.execution.result_limit
        if report.result_limit is not None:
            # The plan's, as the agent was told it: beyond it, what came is cut off.
            limit = min(limit, report.result_limit)
        if len(report.result) > limit:
            return None, _not_kept(f"it is larger than {limit} bytes")
        try:
            msgspec.json.decode(report.result)
            return report.result.decode(), None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return None, _not_kept(f"it is not JSON ({error})")


def _not_kept(why: str) -> Reason:
    return Reason("result_not_kept", f"Done, but its result was not kept: {why}.")


def _next(
    decision: retry.Decision, held: Held, reason: Reason | None, at: datetime
) -> tuple[Status, datetime, datetime, Reason | None]:
    """Return the status, ready time, start_by and reason that a decision leads to."""
    match decision:
        case Finish():
            return Status.DONE, at, held.start_by, None
        case Cancel():
            cancelled = Reason("cancelled", "Cancelled while it ran.")
            return Status.CANCELLED, at, held.start_by, cancelled
        case Retry(when, is_its_turn):
            status = Status.SCHEDULED if when > at else Status.WAITING
            start_by = held.start_by
            if not is_its_turn:
                start_by = graph_order.start_by(when, held.delay_tolerance, held.latest_start)
            return status, when, start_by, reason
        case DeadLetter(why):
            return Status.FAILED, at, held.start_by, _combined(why, reason)


def _combined(why: Reason, last: Reason | None) -> Reason:
    """Say why the task is given up, and what went wrong last."""
    if last is None:
        return why
    return Reason(
        why.code if why.code != "attempts_exhausted" else last.code,
        f"{last.message} {why.message}",
        {**last.details, "given_up": why.code},
    )
