"""Decides what becomes of a task when an attempt at it ends.

The decision is a pure function of the policy, the outcome, and the tally of what
has gone wrong so far. It reads no clock and draws no random number: the caller
passes both, so a simulation that passes the same ones gets the same decisions.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly.model.task import NO_LOST_STARTS, LostStarts, OnLost, Outcome, Reason, Tally


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how patiently, a task is tried again."""

    max_attempts: int = 3
    on_lost: OnLost = OnLost.RETRY
    base_delay: timedelta = timedelta(seconds=5)
    max_delay: timedelta = timedelta(hours=1)
    max_losses: int = 10
    max_lost_starts: int = 3
    """Two nodes may fail together, and take what they were both given along. Of three that were
    each lost when they began the same task, it is likelier that the task is the cause."""


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
    lost_starts: LostStarts = NO_LOST_STARTS,
    is_cancelled: bool,
    now: datetime,
    jitter: float,
) -> Decision:
    """Say what becomes of a task whose attempt has just ended with `outcome`.

    `tally` and `lost_starts` count this attempt too. `jitter`, from 0 to 1, spreads retries out:
    0 gives no delay, 1 the full one. A lost attempt is retried at once and does not count against
    `max_attempts`, because the task did nothing wrong, unless it is lost over and over as it
    begins. A task that was to be cancelled is cancelled however its attempt ended: its client has
    been told so.
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
        case Outcome.LOST if tally.losses >= policy.max_losses:
            return DeadLetter(Reason("lost_too_often", f"It has outlived {tally.losses} nodes."))
        case Outcome.LOST:
            return _after_loss(policy, suspicion(policy, lost_starts), now, jitter)
        case _ if tally.failures < policy.max_attempts:
            return Retry(at=now + backoff(policy, tally.failures, jitter), is_its_turn=False)
        case _:
            which = "its only attempt"
            if policy.max_attempts > 1:
                which = f"the last of {policy.max_attempts} attempts"
            return DeadLetter(Reason("attempts_exhausted", f"That was {which}."))


def suspicion(policy: RetryPolicy, lost: LostStarts) -> int:
    """Return how many have a task in common that were lost when they began it.

    Nodes count, not their agents: one machine that dies again and again says nothing of the task.
    In a cluster that has too few nodes to tell the two apart it is the agents that count, since
    there the task would stop everything else until it is lost too often.
    """
    return lost.nodes if lost.cluster >= policy.max_lost_starts else lost.incarnations


def _after_loss(policy: RetryPolicy, suspects: int, now: datetime, jitter: float) -> Decision:
    """Give up what takes its nodes along; what may be innocent begins apart from its companions.

    Those that were begun together are lost together. So from the second time on each waits for
    another while: then the next node is lost with the one that is guilty, and with few others.
    """
    if suspects >= policy.max_lost_starts:
        message = f"{suspects} agents were lost like this, each as it began this task."
        return DeadLetter(Reason("lost_at_start", message))
    if suspects > 1:
        return Retry(at=now + backoff(policy, suspects, jitter), is_its_turn=False)
    return Retry(at=now, is_its_turn=True)


def backoff(policy: RetryPolicy, failures: int, jitter: float) -> timedelta:
    """Return how long to wait after the `failures`-th failure: doubling, then capped."""
    # In seconds, because a timedelta overflows long before a float does; after 64
    # doublings any cap has been reached.
    full = min(
        policy.base_delay.total_seconds() * 2.0 ** min(failures - 1, 64),
        policy.max_delay.total_seconds(),
    )
    return timedelta(seconds=full * jitter)
