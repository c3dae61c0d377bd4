"""Decides what happens to a task when an attempt ends: finish, retry or dead letter.

The decision is a pure function of the policy, the outcome, and the tally of what
has gone wrong so far. It reads no clock and draws no random number: the caller
passes both, so a simulation that passes the same ones gets the same decisions.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from duly.model.task import NO_LOST_STARTS, LostStarts, OnLost, Outcome, Reason, RetryTerms, Tally

MAX_THROTTLES = 100
"""Further attempts that a downstream throttled count as failures: it may never take the call."""
REQUESTED_SPREAD = 0.1
"""By how much of a requested delay retries are spread, so that a batch does not return at once."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a task is retried, and with which backoff."""

    max_attempts: int = 3
    on_lost: OnLost = OnLost.RETRY
    base_delay: timedelta = timedelta(seconds=5)
    max_delay: timedelta = timedelta(hours=1)
    is_delay_requested: bool = False
    """Whether the task asked for `base_delay`: then no retry comes earlier than that."""
    no_retry_exit_codes: frozenset[int] = frozenset()
    """Exit codes with which the task says that another attempt would fail as well."""
    max_losses: int = 10
    max_lost_starts: int = 3
    """Two nodes may fail by coincidence. If three are lost as each starts the same task, the task
    is the likelier cause."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """How often attempts ended without counting, and the pause that was asked for this time."""

    times: int
    """Including this attempt."""
    retry_after: timedelta | None = None

    @property
    def is_excused(self) -> bool:
        """Return True if the attempt does not count as a failure."""
        return self.times <= MAX_THROTTLES


@dataclass(frozen=True, slots=True)
class Wish:
    """What a function that failed asked for: another delay, or no retry at all."""

    retry_after: timedelta | None = None
    gives_up: bool = False


NO_WISH = Wish()


@dataclass(frozen=True, slots=True)
class Finish:
    """The task is done."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The task ends because its cancellation was requested."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The task goes back to its queue, visible from `at` on.

    `keeps_place`: it keeps its place in the queue, because the attempt's end was not its fault.
    """

    at: datetime
    keeps_place: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The task is set aside for a person to look at."""

    reason: Reason


Decision = Finish | Cancel | Retry | DeadLetter


def count(tally: Tally, outcome: Outcome, throttle: Throttle | None = None) -> Tally:
    """Return the tally after an attempt that ended with `outcome`, perhaps by throttling."""
    match outcome:
        case Outcome.FAILED if throttle is not None and throttle.is_excused:
            return tally
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
    exit_code: int | None = None,
    throttle: Throttle | None = None,
    wish: Wish = NO_WISH,
    now: datetime,
    jitter: float,
) -> Decision:
    """Decide what happens to a task whose attempt ended with `outcome`.

    `tally` and `lost_starts` count this attempt too. `jitter`, from 0 to 1, spreads retries out:
    0 gives no delay, 1 the full one. A lost attempt is retried at once and does not count against
    `max_attempts`, because the task did nothing wrong, unless it is lost repeatedly as it starts.
    A `wish` changes what follows from a failure, which counts like any other.
    A task whose cancellation was requested is cancelled however its attempt ended: the request
    was confirmed to the client.
    """
    match outcome:
        case _ if is_cancelled or outcome is Outcome.CANCELLED:
            return Cancel()
        case Outcome.SUCCEEDED:
            return Finish()
        case Outcome.PREEMPTED | Outcome.EXPIRED:
            return Retry(at=now, keeps_place=True)
        case Outcome.LOST if policy.on_lost is OnLost.FAIL:
            return DeadLetter(Reason("lost", "It is not retried, because on_lost is fail."))
        case Outcome.LOST if tally.losses >= policy.max_losses:
            return DeadLetter(
                Reason("lost_too_often", f"It was lost {tally.losses} times; it is not retried.")
            )
        case Outcome.LOST:
            return _after_loss(policy, lost_start_count(policy, lost_starts), now, jitter)
        case Outcome.FAILED if wish.gives_up:
            return DeadLetter(Reason("gave_up", "It is not retried, as its function asked."))
        case Outcome.FAILED if exit_code in policy.no_retry_exit_codes:
            message = f"It is not retried after exit code {exit_code}, as it asked."
            return DeadLetter(Reason("exit_code_not_retried", message))
        case Outcome.FAILED if throttle is not None and throttle.is_excused:
            return Retry(at=now + _pause(policy, throttle, jitter), keeps_place=True)
        case Outcome.FAILED if (
            wish.retry_after is not None and tally.failures < policy.max_attempts
        ):
            return Retry(at=now + spread(wish.retry_after, jitter), keeps_place=False)
        case _ if tally.failures < policy.max_attempts:
            return Retry(at=now + backoff(policy, tally.failures, jitter), keeps_place=False)
        case _:
            which = "its only attempt"
            if policy.max_attempts > 1:
                which = f"the last of {policy.max_attempts} attempts"
            return DeadLetter(Reason("attempts_exhausted", f"That was {which}."))


def _pause(policy: RetryPolicy, throttle: Throttle, jitter: float) -> timedelta:
    """Return how long a throttled task waits: as it was told, with some spread, or a backoff."""
    if throttle.retry_after is None:
        return backoff(policy, throttle.times, jitter)
    return spread(throttle.retry_after, jitter)


def spread(delay: timedelta, jitter: float) -> timedelta:
    """Return a requested delay, or up to a tenth more."""
    return delay * (1 + REQUESTED_SPREAD * jitter)


def lost_start_count(policy: RetryPolicy, lost: LostStarts) -> int:
    """Return how many nodes were lost as they started the task.

    Nodes count, not incarnations of their agents: one machine that keeps crashing says nothing
    about the task. A cluster with fewer nodes than `max_lost_starts` counts incarnations, because
    there the task would stop all other work until `max_losses`.
    """
    return lost.nodes if lost.cluster >= policy.max_lost_starts else lost.incarnations


def _after_loss(policy: RetryPolicy, lost_starts: int, now: datetime, jitter: float) -> Decision:
    """Dead-letter a task that keeps killing nodes as it starts; spread out the other suspects.

    Tasks that started together are lost together. From the second lost start on each is retried
    after its own backoff, so the next node is lost with the culprit and few other tasks.
    """
    if lost_starts >= policy.max_lost_starts:
        message = f"{lost_starts} agents were lost in this way, each while starting this task."
        return DeadLetter(Reason("lost_at_start", message))
    if lost_starts > 1:
        return Retry(at=now + backoff(policy, lost_starts, jitter), keeps_place=False)
    return Retry(at=now, keeps_place=True)


def with_terms(policy: RetryPolicy, terms: RetryTerms | None) -> RetryPolicy:
    """Return the server's `policy` with what a task requested instead.

    A requested delay longer than the server's `max_delay` raises it, and a requested `max_delay`
    shorter than the server's delay lowers that: what the task says goes before what it leaves out.
    """
    if terms is None:
        return policy
    base, longest = policy.base_delay, policy.max_delay
    if terms.max_delay is not None:
        longest = timedelta(seconds=terms.max_delay)
        base = min(base, longest)
    if terms.delay is not None:
        base = timedelta(seconds=terms.delay)
        longest = longest if terms.max_delay is not None else max(base, longest)
    return replace(
        policy,
        base_delay=base,
        max_delay=longest,
        is_delay_requested=terms.delay is not None,
        no_retry_exit_codes=frozenset(terms.no_retry_exit_codes),
    )


def backoff(policy: RetryPolicy, failures: int, jitter: float) -> timedelta:
    """Return how long to wait after the `failures`-th failure: doubling, then capped.

    Jitter shortens the server's delays, and lengthens requested ones by at most a tenth: who asks
    for ten minutes knows what has to be over by then.
    """
    # In seconds, because a timedelta overflows long before a float does; after 64
    # doublings any cap has been reached.
    full = min(
        policy.base_delay.total_seconds() * 2.0 ** min(failures - 1, 64),
        policy.max_delay.total_seconds(),
    )
    if policy.is_delay_requested:
        longest = policy.max_delay.total_seconds()
        return timedelta(seconds=min(full * (1 + REQUESTED_SPREAD * jitter), longest))
    return timedelta(seconds=full * jitter)
