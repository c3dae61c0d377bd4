"""Decides which due fire times of a schedule run, and which are missed.

Pure functions of the schedule, the time, and whether earlier occurrences are still live. A fire
time either runs or is missed, with a reason. Decisions share no state: a fire time is judged by
those that follow it, so a long backlog can be decided in batches, by different servers.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby, islice

import msgspec

from duly.model.schedules.recurrence import Recurrence
from duly.model.schedules.schedule import Misfire, MissedFireTimes, Overlap
from duly.model.task import Reason
from duly.policy.schedules.recurrence import fire_times

MAX_CATCH_UP_RUNS = 100
"""The latest missed fire times that `misfire: all` runs; earlier ones stay missed."""
MAX_RUNS_PER_DECISION = 100
"""More due fire times of a schedule run by the next decision."""
MAX_FIRE_TIMES_PER_DECISION = 1000
"""More due fire times of a schedule, run or missed, are left to the next decision."""
MAX_COUNTED_MISSES = 1000
"""Counting stops here: no other schedule is served meanwhile."""

TOO_LATE = Reason("too_late", "Its time had passed, and misfire is skip.")
MADE_UP_FOR = Reason("made_up_for", "Its time had passed; a later fire time was run instead.")
TOO_MANY = Reason(
    "too_many_missed",
    f"Its time had passed; only the last {MAX_CATCH_UP_RUNS} missed fire times are run.",
)
OVERLAP = Reason("overlap", "The occurrence of an earlier fire time had not ended.")
REPLACED = Reason("overlap", "A later fire time was already due and replaced it.")


FireTimeDecision = tuple[datetime, Reason | None]
"""A fire time, and the reason if it does not run."""


class FiringDecision(msgspec.Struct, frozen=True):
    """The due fire times that run, those that are missed, and the next one."""

    runs: list[datetime]
    missed: list[MissedFireTimes]
    next_run_at: datetime | None
    cancels_others: bool = False
    """Whether live occurrences of the schedule are to be cancelled."""


def decide(
    recurrence: Recurrence,
    next_run_at: datetime,
    *,
    misfire: Misfire,
    overlap: Overlap,
    has_live: bool,
    grace: timedelta,
    now: datetime,
    max_runs: int = MAX_RUNS_PER_DECISION,
) -> FiringDecision:
    """Decide about the fire times from `next_run_at` to `now`, or the first of many.

    A fire time within `grace` of now is not late. `has_live` tells whether any earlier occurrence
    of the schedule has not ended. At most `max_runs` fire times run.
    """
    due_times = _due_and_next(recurrence, next_run_at, now)
    due = len(due_times) - (due_times[-1] > now)
    judged: list[FireTimeDecision] = []
    runs = 0
    for index, at in enumerate(due_times[: min(due, MAX_FIRE_TIMES_PER_DECISION)]):
        if runs == max_runs:
            break
        reason = None
        if at < now - grace:
            reason = _misfire_reason(misfire, later=due - 1 - index)
        runs += reason is None
        judged.append((at, reason))
    cancels_others = overlap is Overlap.CANCEL_OTHER and has_live and runs > 0
    judged = _apply_overlap(judged, overlap, has_live=has_live)
    return FiringDecision(
        [at for at, reason in judged if reason is None],
        list(_merge_missed(judged)),
        due_times[len(judged)] if len(judged) < len(due_times) else None,
        cancels_others,
    )


def jittered_start(recurrence: Recurrence, schedule_id: int, fire_at: datetime) -> datetime:
    """Return when an occurrence may start: its fire time plus its jitter.

    The jitter is derived from the schedule and the fire time, so every server computes the same.
    """
    if not recurrence.jitter:
        return fire_at
    name = f"{schedule_id} {fire_at.timestamp()}".encode()
    share = int.from_bytes(blake2b(name, digest_size=4).digest(), "big") / 2**32
    return fire_at + recurrence.jitter * share


def missed_until(
    recurrence: Recurrence, next_run_at: datetime, reason: Reason, *, now: datetime
) -> MissedFireTimes | None:
    """Return the fire times from `next_run_at` to `now` as missed; None if none is due.

    Beyond MAX_COUNTED_MISSES the count is a lower bound (`at_least` in the details).
    """
    if next_run_at > now:
        return None
    times, last_at = 1, next_run_at
    for at in fire_times(recurrence, next_run_at):
        if at > now:
            return MissedFireTimes(next_run_at, last_at, times, reason)
        if times == MAX_COUNTED_MISSES:
            details = {**reason.details, "at_least": times}
            return MissedFireTimes(
                next_run_at, now, times, Reason(reason.code, reason.message, details)
            )
        times, last_at = times + 1, at
    return MissedFireTimes(next_run_at, last_at, times, reason)


def _due_and_next(recurrence: Recurrence, next_run_at: datetime, now: datetime) -> list[datetime]:
    """Return the due fire times and the next one, or the first of many."""
    due = [next_run_at]
    times = islice(
        fire_times(recurrence, next_run_at), MAX_FIRE_TIMES_PER_DECISION + MAX_CATCH_UP_RUNS
    )
    while due[-1] <= now and (at := next(times, None)) is not None:
        due.append(at)
    return due


def _misfire_reason(misfire: Misfire, *, later: int) -> Reason | None:
    """Return why a late fire time does not run when `later` more are due; None if it runs."""
    match misfire:
        case Misfire.SKIP:
            return TOO_LATE
        case Misfire.ONCE:
            return MADE_UP_FOR if later else None
        case Misfire.ALL:
            return TOO_MANY if later >= MAX_CATCH_UP_RUNS else None


def _apply_overlap(
    judged: list[FireTimeDecision], overlap: Overlap, *, has_live: bool
) -> list[FireTimeDecision]:
    """Mark the fire times that `overlap` keeps from running beside live or later ones."""
    running = [index for index, (_, reason) in enumerate(judged) if reason is None]
    match overlap:
        case Overlap.ALLOW | Overlap.QUEUE:
            return judged
        case Overlap.SKIP:
            left_out, why = set(running if has_live else running[1:]), OVERLAP
        case Overlap.CANCEL_OTHER:
            left_out, why = set(running[:-1]), REPLACED
    if not left_out:
        return judged
    return [(at, why if index in left_out else reason) for index, (at, reason) in enumerate(judged)]


def _merge_missed(judged: Sequence[FireTimeDecision]) -> Iterator[MissedFireTimes]:
    """Yield the missed fire times, consecutive ones with the same reason as one."""
    for reason, group in groupby(judged, key=lambda decision: decision[1]):
        times = [at for at, _ in group]
        if reason is not None:
            yield MissedFireTimes(times[0], times[-1], len(times), reason)
