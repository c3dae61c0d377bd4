"""Turns an attempt's report into the task's next status, as the store writes it.

`duly.policy.retry` decides between done, retry and dead letter. A success needs no
decision unless its task is being cancelled, and skips the policy.
"""

from datetime import datetime, timedelta
from random import Random

import msgspec

from duly import wire
from duly.config import Settings
from duly.model.queues.downstream import MAX_RETRY_AFTER_SECONDS
from duly.model.task import (
    MAX_RETRY_DELAY,
    NO_LOST_STARTS,
    LostStarts,
    OnLost,
    Outcome,
    Reason,
    Status,
)
from duly.model.wording import as_sentence, either, format_bytes
from duly.policy import graph_order, retry
from duly.policy.retry import (
    NO_WISH,
    Cancel,
    DeadLetter,
    Finish,
    Retry,
    RetryPolicy,
    Throttle,
    Wish,
)
from duly.server.delivery.report_sanitizer import clamp
from duly.server.lifecycle.throttling import is_exit_throttled
from duly.store.attempts.leases import EndedAttempt, LockedAttempt, SucceededAttempt

OWN_FAULT_CODES = ("attempts_exhausted", "exit_code_not_retried", "gave_up")
"""Reasons to give up that say less than how the last attempt failed."""


class AttemptOutcomes:
    """Converts reports of attempts into rows for the store, with the retry policy's decision."""

    def __init__(self, settings: Settings, dice: Random) -> None:
        self._settings = settings
        self._dice = dice

    def succeeded(self, report: wire.AttemptReport) -> SucceededAttempt:
        """Return the row of a success; the store checks the fencing token when it writes it."""
        ref, (result, reason) = report.ref, self._result(report)
        return SucceededAttempt(
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
        held: LockedAttempt,
        report: wire.AttemptReport,
        at: datetime,
        lost_starts: LostStarts = NO_LOST_STARTS,
    ) -> EndedAttempt:
        """Apply the retry policy to an ended attempt, and return the rows to write."""
        if _may_not_begin_again(held, report):
            report = msgspec.structs.replace(report, outcome=Outcome.LOST)
        throttle = _throttle(held, report)
        if throttle is not None:
            report = msgspec.structs.replace(report, reason=_throttled_reason(held, report))
        tally = retry.count(held.tally, report.outcome, throttle)
        decision = retry.decide(
            self._policy(held),
            report.outcome,
            tally,
            lost_starts=lost_starts if report.ran is None else NO_LOST_STARTS,
            is_cancelled=held.cancel_requested_at is not None,
            exit_code=report.exit_code,
            throttle=throttle,
            wish=_wish(report),
            now=at,
            jitter=self._dice.random(),
        )
        status, ready_at, start_by, task_reason = _status_after(decision, held, report.reason, at)
        result = None
        if status is Status.DONE:
            result, task_reason = self._result(report)
        finished_at = max(held.leased_at, at - timedelta(seconds=report.ended_ago))
        started_at = None
        if report.ran is not None:
            started_at = max(held.leased_at, finished_at - timedelta(seconds=report.ran))
        return EndedAttempt(
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
            shape_id=held.shape_id,
        )

    def _policy(self, held: LockedAttempt) -> RetryPolicy:
        settings = self._settings.retries
        policy = RetryPolicy(
            max_attempts=held.max_attempts,
            on_lost=held.on_lost,
            base_delay=settings.base_delay,
            max_delay=settings.max_delay,
            max_losses=settings.max_losses,
            max_lost_starts=settings.max_lost_starts,
        )
        return retry.with_terms(policy, held.retry)

    def _result(self, report: wire.AttemptReport) -> tuple[str | None, Reason | None]:
        """Return the result as text, or the reason it is discarded; neither if there is none."""
        if report.result is None:
            return None, None
        if not report.result:
            return None, _result_not_kept("it is not a readable regular file")
        limit = self._settings.execution.result_limit
        if report.result_limit is not None:
            # The plan's limit, as sent to the agent, which truncates longer results.
            limit = min(limit, report.result_limit)
        if len(report.result) > limit:
            return None, _result_not_kept(f"it has more than {format_bytes(limit)}")
        try:
            msgspec.json.decode(report.result)
            return report.result.decode(), None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return None, _result_not_kept(f"it is not JSON ({error})")


def _throttle(held: LockedAttempt, report: wire.AttemptReport) -> Throttle | None:
    """Return what an attempt says about throttling by its exit code; None if it says nothing."""
    if not held.uses or not is_exit_throttled(report):
        return None
    pauses = [clamp(told.retry_after, MAX_RETRY_AFTER_SECONDS) for told in report.throttled]
    retry_after = timedelta(seconds=max(pauses)) if any(pauses) else None
    return Throttle(held.attempt - held.failures - held.losses, retry_after)


def _wish(report: wire.AttemptReport) -> Wish:
    """Return what the function of a call asked for as it failed."""
    if report.retry_after is None:
        return Wish(gives_up=True) if report.gives_up else NO_WISH
    seconds = clamp(report.retry_after, MAX_RETRY_DELAY.total_seconds())
    return Wish(timedelta(seconds=seconds), report.gives_up)


def _throttled_reason(held: LockedAttempt, report: wire.AttemptReport) -> Reason:
    told = {throttled.key for throttled in report.throttled} & set(held.uses)
    keys = sorted(told) or held.uses
    message = f"Throttled by {either(keys, 'and')} (exit code {report.exit_code})."
    return Reason("throttled", message, {"exit_code": report.exit_code, "keys": keys})


def _result_not_kept(why: str) -> Reason:
    return Reason("result_not_kept", f"Done, but its result was not kept: {why}.")


def _status_after(
    decision: retry.Decision, held: LockedAttempt, reason: Reason | None, at: datetime
) -> tuple[Status, datetime, datetime, Reason | None]:
    """Return the status, ready time, start_by and reason that follow from a decision."""
    match decision:
        case Finish():
            return Status.DONE, at, held.start_by, None
        case Cancel():
            cancelled = Reason("cancelled", "Cancelled while it was running.")
            return Status.CANCELLED, at, held.start_by, cancelled
        case Retry(when, keeps_place):
            status = Status.SCHEDULED if when > at else Status.WAITING
            start_by = held.start_by
            if not keeps_place:
                start_by = graph_order.start_by(when, held.delay_tolerance, held.latest_start)
            return status, when, start_by, reason
        case DeadLetter(why):
            return Status.FAILED, at, held.start_by, _combined_reason(why, reason)


def _may_not_begin_again(held: LockedAttempt, report: wire.AttemptReport) -> bool:
    """Return True for a call that was killed with its process, and must not be begun twice."""
    if held.on_lost is not OnLost.FAIL or report.reason is None:
        return False
    return report.outcome is Outcome.PREEMPTED and report.reason.code == wire.NEIGHBOR_KILLED


def _combined_reason(why: Reason, last: Reason | None) -> Reason:
    """Return why the task is given up together with what went wrong last."""
    if last is None:
        return why
    return Reason(
        last.code if why.code in OWN_FAULT_CODES else why.code,
        f"{as_sentence(last.message)} {why.message}",
        {**last.details, "given_up": why.code},
    )
