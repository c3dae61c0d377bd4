"""Moves tasks that are retried after a failure to the queue of the next higher level.

The queue is part of the shape, so the live row gets another shape id; the task itself keeps the
queue that it was submitted to, by which it is billed. Only a batch of reports with such a retry
takes a statement for this.
"""

from collections.abc import Mapping, Sequence

import msgspec

from duly.model.shape import Shape
from duly.model.task import Status
from duly.policy.retry_queue import queue_of_retry
from duly.store.attempts.leases import EndedAttempt
from duly.store.database import Connection
from duly.store.fleet import queues
from duly.store.fleet.queues import PromotionTerms
from duly.store.tasks import tasks


class RetryPromotion:
    """Chooses the shapes of retries, and caches the ids of those that are committed."""

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._ids: dict[str, int] = {}
        """By shape key."""

    async def apply(
        self, conn: Connection, ended: Sequence[EndedAttempt]
    ) -> tuple[list[EndedAttempt], Mapping[str, int]]:
        """Return the attempts, retried ones with the shape of their next queue, and new shape ids.

        The caller passes the latter to `put` after the commit.
        """
        retried = [attempt for attempt in ended if _is_retried_failure(attempt)]
        if not self._is_enabled or not retried:
            return list(ended), {}
        terms = await queues.read_promotion_terms(
            conn,
            {attempt.held.tenant_id for attempt in retried},
            {attempt.held.shape_id for attempt in retried},
        )
        keys: dict[int, str] = {}
        missing: dict[str, Shape] = {}
        for attempt in retried:
            shape = _shape_of_retry(attempt, terms)
            key = keys[attempt.held.id] = tasks.shape_key(shape)
            if key not in self._ids:
                missing[key] = shape
        interned = await tasks.intern_shapes(conn, missing) if missing else {}
        ids = {task: interned.get(key) or self._ids[key] for task, key in keys.items()}
        promoted = [
            msgspec.structs.replace(attempt, shape_id=ids.get(attempt.held.id, attempt.shape_id))
            for attempt in ended
        ]
        return promoted, interned

    def put(self, ids: Mapping[str, int]) -> None:
        """Cache ids from `apply`. Call it after the commit."""
        self._ids.update(ids)


def _is_retried_failure(attempt: EndedAttempt) -> bool:
    """Return True if the attempt counts as a failure; after all others a task keeps its place."""
    is_failure = attempt.tally.failures > attempt.held.failures
    return is_failure and attempt.status in (Status.SCHEDULED, Status.WAITING)


def _shape_of_retry(attempt: EndedAttempt, terms: PromotionTerms) -> Shape:
    shape = terms.shapes[attempt.held.shape_id]
    allowed = terms.allowed.get(attempt.held.tenant_id)
    queue = queue_of_retry(shape.queue, terms.queues, allowed, terms.now)
    return msgspec.structs.replace(shape, queue=queue)
