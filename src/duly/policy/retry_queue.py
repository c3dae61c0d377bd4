"""Decides the queue of a retry: that of the next higher level.

A task that failed has waited for its turn once, and its next attempt need not wait behind all
others again. It never leaves an off-peak queue, nor one that is paused or has hours or a maximum
share, which it would escape by failing. It enters only queues that its plan includes.
"""

from collections.abc import Collection
from datetime import datetime

from duly.model.queues.queue import Queue, QueueDefinition, QueueDefinitions
from duly.policy.budget.queue_room import may_start

FOR_EVERYONE = (Queue.PERIODIC, Queue.DELAYABLE)
"""The queues that no task requests, and so no plan excludes."""


def queue_of_retry(
    queue: str | None,
    definitions: QueueDefinitions,
    allowed: Collection[str] | None,
    now: datetime,
) -> str | None:
    """Return the queue in which a failed task is retried; None is `delayable`.

    `allowed` are the queues that the tenant's plan includes, or None if it includes all.
    """
    current = definitions.get(queue)
    if current.off_peak or current.is_restricted:
        return queue

    def is_eligible(other: QueueDefinition) -> bool:
        is_included = allowed is None or other.name in allowed or other.name in FOR_EVERYONE
        return (
            other.level < current.level
            and not other.off_peak
            and is_included
            and may_start(other, now)
        )

    higher = [other for other in definitions.by_name.values() if is_eligible(other)]
    if not higher:
        return queue
    # Of equal levels, a built-in one: it was made for no other tasks in particular.
    chosen = min(higher, key=lambda other: (-other.level, not other.is_built_in, other.name))
    return None if chosen.name == Queue.DELAYABLE else chosen.name
