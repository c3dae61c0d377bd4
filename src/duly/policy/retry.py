"""Decides what becomes of a task when an attempt at it ends.

The decision is a pure function of the policy, the outcome, and the tally of what
has gone wrong so far. It reads no clock and draws no random number: the caller
passes both, so a simulation that passes the same ones gets the same decisions.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly.model.task import OnLost, Outcome, Reason, Tally


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how patiently, a task is tried again."""

    max_attempts: int = 3
    on_lost: OnLost = OnLost.RETRY
    base_delay: timedelta = timedelta(seconds=5)
    max_delay: timedelta = timedelta(hours=1)
    max_losses: int = 10


@dataclass(frozen=True, slots=True)
class Finish:
    """The task is done."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The task ends because somebody asked for it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The task goes back to its queue, visible from `at` on.

    `is_its_turn` keeps its old place in the queue: it did nothing to lose it.
    """

    at: datetime
    is_its_turn: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The task is set aside for a person to look at."""

    reason: Reason


Decision = Finish | Cancel | Retry | DeadLetter


def count(tally: Tally, outcome: Outcome) -> Tally:
    """Return the tally after an attempt that ended with `outcome`."""
    match outcome:
        case Outcome.FAILED | Outcome.CAPPED | Outcome.OVERUSED:
            return Tally(tally.failures + 1, tally.losses)
        case Outcome.LOST:
            return Tally(tally.failures, tally.losses + 1)
        case Outcome.SUCCEEDED | Outcome.CANCELLED | Outcome.PREEMPTED | Outcome.EXPIRED:
            return tally


def decide(
    policy: RetryPolicy,
    outcome: Outcome,
    tally: Tally,
    *,
    is_cancelled: bool,
    now: datetime,
    jitter: float,
) -> Decision:
    """Say what becomes of a task whose attempt has just ended with `outcome`.

    `tally` counts this attempt too. `jitter`, from 0 to 1, spreads retries out: 0 gives no
    delay, 1 the full one. A lost attempt is retried at once and does not count against
    `max_attempts`, because the task did nothing wrong. A task that was to be cancelled is
    cancelled however its attempt ended: its client has been told so.
    """
    match outcome:
        case _ if is_cancelled or outcome is Outcome.CANCELLED:
            return Cancel()
        case Outcome.SUCCEEDED:
            return Finish()
        case Outcome.PREEMPTED | Outcome.EXPIRED:
            return Retry(at=now, is_its_turn=True)
        case Outcome.LOST if policy.on_lost is OnLost.FAIL:
            return DeadLetter(Reason("lost", "It must not be begun twice (on_lost is fail)."))
        case Outcome.LOST if tally.losses < policy.max_losses:
            return Retry(at=now, is_its_turn=True)
        case Outcome.LOST:
            return DeadLetter(Reason("lost_too_often", f"It has outlived {tally.losses} nodes."))
        case _ if tally.failures < policy.max_attempts:
            return Retry(at=now + backoff(policy, tally.failures, jitter), is_its_turn=False)
        case _:
            which = "its only attempt"
            if policy.max_attempts > 1:
                which = f"the last of {policy.max_attempts} attempts"
            return DeadLetter(Reason("attempts_exhausted", f"That was {which}."))


def backoff(policy: RetryPolicy, failures: int, jitter: float) -> timedelta:
    """Return how long to wait after the `failures`-th failure: doubling, then capped."""
    # In seconds, because a timedelta overflows long before a float does; after 64
    # doublings any cap has been reached.
    full = min(
        policy.base_delay.total_seconds() * 2.0 ** min(failures - 1, 64),
        policy.max_delay.total_seconds(),
    )
    return timedelta(seconds=full * jitter)
