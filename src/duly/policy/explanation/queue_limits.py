"""Explains that a task waits because its queue is paused, closed, or holds its share already."""

from duly.model.resources import field_amount, field_name, format_amount, format_bare_amount
from duly.model.task import Reason
from duly.policy.budget.queue_room import fleet_capacity, is_open, next_opening, share_limit
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.timestamps import timestamp


def queue_shut(facts: Facts) -> Reason | None:
    """Return the reason if the queue starts no tasks at all now; None if it does."""
    queue = facts.definition
    if queue is None or facts.now is None:
        return None
    if queue.paused_at is not None:
        since = timestamp(queue.paused_at)
        return Reason(
            "queue_paused",
            f"The queue {queue.name!r} was paused by {queue.paused_by} at {since}, so none of its "
            f"tasks start. An administrator can resume it with 'duly queue resume {queue.name}'.",
            {"queue": queue.name, "by": queue.paused_by, "paused_at": since},
        )
    if queue.hours is None or is_open(queue.hours, facts.now):
        return None
    opens_at = timestamp(next_opening(queue.hours, facts.now))
    return Reason(
        "queue_closed",
        f"The queue {queue.name!r} starts tasks only from {queue.hours.opens:%H:%M} to "
        f"{queue.hours.closes:%H:%M} ({queue.hours.timezone}). It opens at {opens_at}.",
        {
            "queue": queue.name,
            "hours": str(queue.hours),
            "timezone": queue.hours.timezone,
            "opens_at": opens_at,
        },
    )


def queue_full(facts: Facts) -> Reason | None:
    """Return the reason if the queue would hold more than its share with the task; else None."""
    queue = facts.definition
    if queue is None or queue.max_share is None:
        return None
    over = share_limit(queue, fleet_capacity(facts.offers), facts.held_by_queue, facts.needs)
    if over is None:
        return None
    percent = f"{100 * queue.max_share:.4g} %"
    bound = format_bare_amount(over.kind, over.limit)
    used = format_bare_amount(over.kind, over.used)
    needed = format_amount(over.kind, over.needed)
    if over.needed > over.limit:
        rest = "the task can never start unless the fleet grows or the share is raised."
    else:
        rest = f"its running tasks use {used}."
    return Reason(
        "queue_limit",
        f"It needs {needed}; the queue {queue.name!r} may hold {percent} of the fleet, which is "
        f"{bound}, and {rest}",
        {
            "queue": queue.name,
            "max_share": queue.max_share,
            "kind": field_name(over.kind),
            "needed": field_amount(over.kind, over.needed),
            "limit": field_amount(over.kind, over.limit),
            "used": field_amount(over.kind, over.used),
        },
    )
