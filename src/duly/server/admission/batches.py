"""Stores many tasks in one transaction: all of them, or none."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.errors import Unavailable
from duly.model.bucket import Bucket
from duly.model.tenant import Credential
from duly.server import repeats, unique
from duly.server.lines import EARLIEST
from duly.server.offload import offload
from duly.server.rate_limiter import RateLimiter
from duly.store import tasks, tenants
from duly.store.database import Connection
from duly.store.tasks import NewTask

CHUNK = 2000
"""How many tasks of a batch go into one statement."""


class StoredBatch(msgspec.Struct, frozen=True):
    """The tasks of a batch that was stored, now or before."""

    ids: list[int]
    fresh: int = 0
    """How many of them were stored now."""
    since: datetime = EARLIEST
    """The earliest time by which one of them must start."""
    bucket: Bucket | None = None
    """What is left to its tenant, if its plan has a rate and something was stored."""


class BatchStore:
    """Stores batches on behalf of one server."""

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
        """Store a batch, unless `key` was seen before: then return what it stands for."""
        await offload(len(new), unique.check_distinct, new)
        bucket = await self._rate_limiter.lock(conn, credential)
        if key is not None:
            body_hash = await offload(len(new), repeats.hash_of_batch, new, credential.plan)
            minted = [task.id for task in new]
            if not await tasks.claim_batch_key(conn, credential.tenant_id, key, body_hash, minted):
                known = await repeats.read_batch(conn, credential.tenant_id, key, body_hash)
                return StoredBatch(known)
        stored = await self._store(conn, credential, new, bucket, server)
        if key is not None and stored.ids != minted:
            # Some of its tasks were there before, under keys of their own.
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
        # What certainly is new is refused before any of it is written.
        sure, tolerance, latest = await offload(len(new), _survey, new)
        if bucket is not None:
            left = await self._rate_limiter.charge(conn, credential, bucket, sure)
        # Nothing of the batch must start before now and its tolerance, or before what comes
        # after it has to at a time of its own. Once the tenant is held,
        # none of its tasks is left out by the insert for want of a tenant.
        at = await tenants.hold(conn, credential.tenant_id)
        since = min(at + tolerance, latest or at + tolerance).replace(microsecond=0)
        ids: list[int] = []
        fresh = 0
        for first in range(0, len(new), CHUNK):
            chunk, count = await _insert(conn, new[first : first + CHUNK], server)
            ids += chunk
            fresh += count
        if bucket is not None:
            left = await self._rate_limiter.charge(conn, credential, left, fresh - sure)
        return StoredBatch(ids, fresh, since, None if bucket is None else left)


def _survey(new: Sequence[NewTask]) -> tuple[int, timedelta, datetime | None]:
    """Return how many are certainly new, the shortest tolerance, and the earliest `latest`."""
    sure = sum(not task.spec.has_key for task in new)
    tolerances = {task.spec.delay_tolerance for task in new}
    latest = {task.ahead.latest for task in new}
    return sure, min(tolerances, default=timedelta(0)), min(filter(None, latest), default=None)


async def _insert(conn: Connection, new: Sequence[NewTask], server: int) -> tuple[list[int], int]:
    """Store a part of a batch; return the ids of its tasks, and how many are new."""
    if not any(task.spec.has_key for task in new):
        await tasks.insert(conn, new, server=server, tell=False)
        return [task.id for task in new], len(new)
    done = await tasks.insert(conn, new, server=server)
    known = await repeats.read_known(conn, new, done.stored)
    fresh = {one.id for one in done.stored}
    ids = [task.id if task.id in fresh else _known(task, known, done.held) for task in new]
    return ids, len(fresh)


def _known(task: NewTask, known: repeats.Known, held: Mapping[int, int]) -> int:
    seen = repeats.same_task(task, known)
    if seen is None and task.spec.unique is not None and task.id in held:
        return unique.settle(task.spec.unique, held[task.id])
    if seen is None:
        key = task.spec.idempotency_key
        raise Unavailable(f"The idempotency key {key!r} was just released; submit again.")
    return seen.task_id
