"""Adds to the reason of a waiting task its position, and when the next running task ends."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from duly.model.node import Offer
from duly.model.task import Reason
from duly.model.wording import count_of
from duly.policy.explanation.timestamps import timestamp

QUEUEING_CODES = frozenset(
    {
        "no_capacity",
        "tenant_limit",
        "concurrency_limit",
        "downstream_limit",
        "queue_limit",
        "off_peak",
        "postponed",
        "headroom",
    }
)
"""Reasons that end for one task after the other, in the order of the queue."""


def add_position(reason: Reason, ahead: int | None) -> Reason:
    """Return the reason with the position of a task that has `ahead` tasks like it before it."""
    if ahead is None or reason.code not in QUEUEING_CODES:
        return reason
    text = "It is next in line."
    if ahead:
        text = (
            f"{count_of(ahead, 'task')} of its tenant with the same needs "
            f"{'is' if ahead == 1 else 'are'} ahead."
        )
    return Reason(
        reason.code, f"{reason.message} {text}", {**reason.details, "position": ahead + 1}
    )


def add_next_end(reason: Reason, offers: Sequence[Offer], now: datetime | None) -> Reason:
    """Return the reason with the time by which the first task on these nodes has ended.

    Nothing is added if no task runs there: then room is kept for reservations.
    """
    ends = [offer.next_end for offer in offers if offer.next_end > timedelta(0)]
    if now is None or not ends:
        return reason
    at = timestamp(now + min(ends))
    return Reason(
        reason.code,
        f"{reason.message} The next running task there ends at {at} at the latest.",
        {**reason.details, "next_end": at},
    )
