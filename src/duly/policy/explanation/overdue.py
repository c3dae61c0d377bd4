"""Explains that a task has waited past its delay tolerance, and when to try again."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from duly.duration import format_duration
from duly.model.node import Offer
from duly.model.resources import field_name, format_amount
from duly.model.shape import Shape
from duly.model.task import Reason
from duly.model.wording import either
from duly.policy import placement
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.timestamps import timestamp

NO_ENDS: Mapping[int, timedelta] = {}


def add_overdue(reason: Reason, facts: Facts) -> Reason:
    """Return the reason of a waiting task with since when it is overdue, if it is.

    What is short is in the reason already; for any other reason it says when to try again.
    """
    if facts.overdue_since is None or facts.now is None:
        return reason
    shape = facts.shape
    wait = retry_after(shape, facts.offers, facts.delay_tolerance, facts.expected_ends)
    since = timestamp(facts.overdue_since)
    text = f"It has been overdue since {since}"
    if reason.code != "no_capacity":
        text += f"; try again after {timestamp(facts.now + wait)}"
    return Reason(
        reason.code,
        f"{reason.message} {text}.",
        {**reason.details, "overdue_since": since, "retry_after": _seconds(wait)},
    )


def cancelled_overdue(
    shape: Shape,
    offers: Sequence[Offer],
    start_by: datetime,
    tolerance: timedelta,
    expected_ends: Mapping[int, timedelta] = NO_ENDS,
) -> Reason:
    """Return the reason of a task that is cancelled because it is overdue."""
    wait = retry_after(shape, offers, tolerance, expected_ends)
    short = _short_kinds(shape, offers)
    amounts = dict(shape.needs.items())
    problem = ""
    if short:
        wanted = either((format_amount(kind, amounts[kind]) for kind in short), "and")
        problem = f": no node had {wanted} free"
    return Reason(
        "overdue",
        f"It could not start by {timestamp(start_by)}, within its delay tolerance of "
        f"{format_duration(tolerance)}{problem}. Try again in "
        f"{format_duration(timedelta(seconds=_seconds(wait)))}.",
        {
            "start_by": timestamp(start_by),
            "retry_after": _seconds(wait),
            "kinds": sorted(map(field_name, short)),
        },
    )


def retry_after(
    shape: Shape,
    offers: Sequence[Offer],
    tolerance: timedelta,
    expected_ends: Mapping[int, timedelta] = NO_ENDS,
) -> timedelta:
    """Return after what time to try again: when a running task has ended that is in the way.

    `expected_ends`, by incarnation, are the times that run times suggest; caps say the rest.
    If a node has room already, or nothing runs where the task could, that time is unknown, and
    the delay tolerance is as good a guess as any.
    """
    if any(placement.fits(shape, offer) for offer in offers):
        return tolerance
    ends = [
        expected_ends.get(offer.incarnation_id, offer.next_end)
        for offer in offers
        if offer.next_end > timedelta(0) and placement.could_fit(shape, offer)
    ]
    return min(ends, default=tolerance)


def _short_kinds(shape: Shape, offers: Sequence[Offer]) -> list[str]:
    """Return the kinds of which the node nearest to fitting has too little free."""
    shortages = [
        offer.free.shortage(shape.needs, offer.capacity)
        for offer in offers
        if placement.could_fit(shape, offer)
    ]
    if not shortages:
        return []
    nearest = min(shortages, key=lambda short: (len(short), sum(short.values())))
    return list(nearest)


def _seconds(wait: timedelta) -> int:
    return max(1, math.ceil(wait.total_seconds()))
