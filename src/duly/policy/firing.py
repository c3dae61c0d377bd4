"""Decides what becomes of the fire times of a schedule that are due.

Pure functions of the schedule, the time and what of it is still live. A fire time either
runs or is missed, with a reason. Nothing is remembered from one decision to the next: each
fire time is judged by the ones that come after it, so that a long list can be decided about
piece by piece, and by one server after another.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby, islice

import msgspec

from duly.model.recurrence import Recurrence
from duly.model.schedule import Misfire, Missed, Overlap
from duly.model.task import Reason
from duly.policy.recurrence import fire_times

CATCH_UP = 100
"""Fire times of the past that `misfire: all` makes up for, at most: the last ones."""
MOST_RUNS = 100
"""Fire times of one schedule that run by one decision, at most; the others by the next one."""
PIECE = 1000
"""Fire times of one schedule about which is decided at once, at most."""
MOST_COUNTED = 1000
"""Fire times that are counted when a schedule passes over many: nobody else is served meanwhile."""

TOO_LATE = Reason("too_late", "Its time had passed, and the schedule's misfire is skip.")
MADE_UP_FOR = Reason("made_up_for", "Its time had passed; a later one was run instead of it.")
TOO_MANY = Reason(
    "too_many_missed", f"Its time had passed; only the last {CATCH_UP} are made up for."
)
OVERLAP = Reason("overlap", "What an earlier fire time submitted had not ended.")
REPLACED = Reason("overlap", "A later fire time was due already, and takes its place.")


Judged = tuple[datetime, Reason | None]
"""A fire time, and why it does not run if it does not."""


class Decided(msgspec.Struct, frozen=True):
    """What becomes of due fire times: those to run, those missed, and which one comes next."""

    runs: list[datetime]
    missed: list[Missed]
    next_run_at: datetime | None
    cancels_others: bool = False
    """Whether what is still live is to be cancelled."""


def decide(
    recurrence: Recurrence,
    next_run_at: datetime,
    *,
    misfire: Misfire,
    overlap: Overlap,
    has_live: bool,
    grace: timedelta,
    now: datetime,
    most_runs: int = MOST_RUNS,
) -> Decided:
    """Decide about the fire times from `next_run_at` to `now`, or the first of many.

    A fire time within `grace` of now is not late. `has_live` says whether anything that the
    schedule submitted before has not ended. At most `most_runs` run by this decision.
    """
    known = _known(recurrence, next_run_at, now)
    due = len(known) - (known[-1] > now)
    judged: list[Judged] = []
    runs = 0
    for index, at in enumerate(known[: min(due, PIECE)]):
        if runs == most_runs:
            break
        reason = None
        if at < now - grace:
            reason = _why_not(misfire, later=due - 1 - index)
        runs += reason is None
        judged.append((at, reason))
    cancels_others = overlap is Overlap.CANCEL_OTHER and has_live and runs > 0
    judged = _without_overlap(judged, overlap, has_live=has_live)
    return Decided(
        [at for at, reason in judged if reason is None],
        list(_joined(judged)),
        known[len(judged)] if len(judged) < len(known) else None,
        cancels_others,
    )


def start_of(recurrence: Recurrence, schedule_id: int, fire_at: datetime) -> datetime:
    """Return when an occurrence may start: its fire time and its share of the jitter.

    The share is the same whenever and wherever one asks.
    """
    if not recurrence.jitter:
        return fire_at
    name = f"{schedule_id} {fire_at.timestamp()}".encode()
    share = int.from_bytes(blake2b(name, digest_size=4).digest(), "big") / 2**32
    return fire_at + recurrence.jitter * share


def passed_over(
    recurrence: Recurrence, next_run_at: datetime, reason: Reason, *, now: datetime
) -> Missed | None:
    """Return the fire times up to `now` to which nobody will see; None when none has come.

    So many are counted; of more only the number is told that there are at least.
    """
    if next_run_at > now:
        return None
    times, last_at = 1, next_run_at
    for at in fire_times(recurrence, next_run_at):
        if at > now:
            return Missed(next_run_at, last_at, times, reason)
        if times == MOST_COUNTED:
            details = {**reason.details, "at_least": times}
            return Missed(next_run_at, now, times, Reason(reason.code, reason.message, details))
        times, last_at = times + 1, at
    return Missed(next_run_at, last_at, times, reason)


def _known(recurrence: Recurrence, next_run_at: datetime, now: datetime) -> list[datetime]:
    """Return the fire times that are due and the next one, or the first of many."""
    known = [next_run_at]
    times = islice(fire_times(recurrence, next_run_at), PIECE + CATCH_UP)
    while known[-1] <= now and (at := next(times, None)) is not None:
        known.append(at)
    return known


def _why_not(misfire: Misfire, *, later: int) -> Reason | None:
    """Say why a fire time that is late does not run, when `later` ones are due as well."""
    match misfire:
        case Misfire.SKIP:
            return TOO_LATE
        case Misfire.ONCE:
            return MADE_UP_FOR if later else None
        case Misfire.ALL:
            return TOO_MANY if later >= CATCH_UP else None


def _without_overlap(judged: list[Judged], overlap: Overlap, *, has_live: bool) -> list[Judged]:
    """Keep of those that would run the ones that `overlap` lets run beside each other."""
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


def _joined(judged: Sequence[Judged]) -> Iterator[Missed]:
    """Yield the missed ones, those in a row with the same reason as one."""
    for reason, group in groupby(judged, key=lambda one: one[1]):
        times = [at for at, _ in group]
        if reason is not None:
            yield Missed(times[0], times[-1], len(times), reason)
