"""Stores a batch of tasks in one transaction: all of them, or none."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.errors import Unavailable
from duly.model.bucket import Bucket
from duly.model.tenant import Credential
from duly.server.admission import idempotency, unique_keys
from duly.server.admission.rate_limiter import RateLimiter
from duly.server.offload import offload
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from duly.store.accounts import tenants
from duly.store.database import Connection
from duly.store.tasks import tasks
from duly.store.tasks.tasks import NewTask

MAX_TASKS_PER_INSERT = 2000


class StoredBatch(msgspec.Struct, frozen=True):
    """The tasks of a batch that was stored, by this request or an earlier one."""

    ids: list[int]
    new_count: int = 0
    """How many of the tasks this request stored."""
    earliest_start_by: datetime = UNKNOWN_START_BY
    """A lower bound of the tasks' `start_by`."""
    bucket: Bucket | None = None
    """The tenant's bucket afterwards, if its plan has a rate and something was stored."""

    @property
    def created(self) -> bool:
        """Return False if this request stored nothing: all of it was submitted before."""
        return self.new_count > 0


class BatchStore:
    """Stores batches, charges them to the rate limit, and detects duplicates."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self._rate_limiter = rate_limiter

    async def store(
        self,
        conn: Connection,
        credential: Credential,
        new: Sequence[NewTask],
        *,
        key: str | None,
        server: int,
    ) -> StoredBatch:
        """Store a batch; if its idempotency key was used before, return the earlier batch."""
        bucket = await self._rate_limiter.lock(conn, credential)
        if key is not None:
            body_hash = await offload(len(new), idempotency.hash_batch, new, credential.plan)
            new_ids = [task.id for task in new]
            if not await tasks.claim_batch_key(conn, credential.tenant_id, key, body_hash, new_ids):
                ids = await idempotency.read_earlier_batch(
                    conn, credential.tenant_id, key, body_hash
                )
                return StoredBatch(ids)
        stored = await self._store(conn, credential, new, bucket, server)
        if key is not None and stored.ids != new_ids:
            # Some of its tasks are duplicates by keys of their own.
            await tasks.set_batch(conn, credential.tenant_id, key, stored.ids)
        return stored

    async def _store(
        self,
        conn: Connection,
        credential: Credential,
        new: Sequence[NewTask],
        bucket: Bucket | None,
        server: int,
    ) -> StoredBatch:
        # Charge the tasks without keys first: a refusal then comes before anything is written.
        certainly_new, tolerance, latest = await offload(len(new), _summarize, new)
        if bucket is not None:
            bucket = await self._rate_limiter.charge(conn, credential, bucket, certainly_new)
        # No task has to start before now + its tolerance, or before the `latest` that its
        # downstream tasks impose. With the tenant's row locked, the insert cannot leave out a
        # task because its tenant has been removed.
        now = await tenants.hold(conn, credential.tenant_id)
        start_by = min(now + tolerance, latest or now + tolerance).replace(microsecond=0)
        ids: list[int] = []
        new_count = 0
        for first in range(0, len(new), MAX_TASKS_PER_INSERT):
            part = new[first : first + MAX_TASKS_PER_INSERT]
            part_ids, part_new_count = await _insert(conn, part, server)
            ids += part_ids
            new_count += part_new_count
        if bucket is not None:
            more = new_count - certainly_new
            bucket = await self._rate_limiter.charge(conn, credential, bucket, more)
        return StoredBatch(ids, new_count, start_by, bucket)


def _summarize(new: Sequence[NewTask]) -> tuple[int, timedelta, datetime | None]:
    """Return the number of tasks without keys, the least tolerance, and the earliest `latest`."""
    certainly_new = sum(not task.spec.has_key for task in new)
    tolerances = {task.spec.delay_tolerance for task in new}
    latest = {task.inherited.start_by for task in new}
    return (
        certainly_new,
        min(tolerances, default=timedelta(0)),
        min(filter(None, latest), default=None),
    )


async def _insert(conn: Connection, new: Sequence[NewTask], server: int) -> tuple[list[int], int]:
    """Store a part of a batch; return the ids of its tasks, and how many were not duplicates."""
    if not any(task.spec.has_key for task in new):
        await tasks.insert(conn, new, server=server, returning=False)
        return [task.id for task in new], len(new)
    inserted = await tasks.insert(conn, new, server=server)
    earlier = await idempotency.read_earlier(conn, new, inserted.stored)
    stored = {task.id for task in inserted.stored}
    ids = [
        task.id if task.id in stored else _existing_task(task, earlier, inserted.held)
        for task in new
    ]
    return ids, len(stored)


def _existing_task(
    task: NewTask, earlier: idempotency.SubmissionsByKey, held: Mapping[int, int]
) -> int:
    duplicate = idempotency.find_duplicate(task, earlier)
    if duplicate is None and task.spec.unique is not None and task.id in held:
        return unique_keys.resolve_conflict(task.spec.unique, held[task.id])
    if duplicate is None:
        key = task.spec.idempotency_key
        raise Unavailable(f"The idempotency key {key!r} was just released. Submit again.")
    return duplicate.task_id
