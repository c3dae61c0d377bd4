"""Tells clients what a commit has made of their requests."""

from collections.abc import Mapping
from datetime import timedelta

from duly.errors import Conflict, KeyReused
from duly.server import repeats, unique
from duly.server.line import Admitted, Waiting
from duly.server.rate_limiter import count_refused, refusal
from duly.store import tenants
from duly.store.tasks import Inserted, Stored


def answer(
    request: Waiting,
    fresh: Mapping[int, Stored],
    known: repeats.Known,
    done: Inserted,
) -> bool:
    """Answer a request by what its commit did; False when it did nothing, for no fault of it."""
    task = request.task
    if task.id in fresh:
        request.resolve(Admitted(task.id, True, fresh[task.id]))
        return True
    try:
        seen = repeats.same_task(task, known)
    except KeyReused as error:
        request.refuse(error)
        return True
    if seen is not None:
        request.resolve(Admitted(seen.task_id, False))
        return True
    if task.spec.unique is not None and task.id in done.held:
        try:
            holder = unique.settle(task.spec.unique, done.held[task.id])
        except Conflict as error:
            request.refuse(error)
        else:
            request.resolve(Admitted(holder, False))
        return True
    if task.tenant_id in done.gone:
        request.refuse(tenants.gone())
        return True
    bucket = done.buckets.get(task.tenant_id)
    if task.is_limited and bucket is not None and bucket.whole < 1:
        count_refused()
        request.refuse(refusal(bucket.rate, timedelta(seconds=bucket.seconds_until(1))))
        return True
    # Its bucket or its tenant was held by somebody else, or its key was released a moment ago.
    return False
