"""Resolves the requests of a group commit by what the commit did."""

from collections.abc import Mapping
from datetime import timedelta

from duly.errors import Conflict, KeyReused
from duly.server.admission import idempotency, unique_keys
from duly.server.admission.commit_queue import Admitted, CommitRequest
from duly.server.admission.rate_limiter import count_refused, rate_exceeded
from duly.store.accounts import tenants
from duly.store.tasks.tasks import InsertResult, StoredTask


def resolve_request(
    request: CommitRequest,
    stored: Mapping[int, StoredTask],
    earlier: idempotency.SubmissionsByKey,
    inserted: InsertResult,
) -> bool:
    """Resolve or refuse a request; return False if it must be committed again.

    `stored` are the stored tasks by id, `earlier` the submissions that have used the same keys.
    """
    task = request.task
    if task.id in stored:
        request.resolve(Admitted(task.id, True, stored[task.id]))
        return True
    try:
        duplicate = idempotency.find_duplicate(task, earlier)
    except KeyReused as error:
        request.refuse(error)
        return True
    if duplicate is not None:
        request.resolve(Admitted(duplicate.task_id, False))
        return True
    if task.spec.unique is not None and task.id in inserted.held:
        try:
            holder = unique_keys.resolve_conflict(task.spec.unique, inserted.held[task.id])
        except Conflict as error:
            request.refuse(error)
        else:
            request.resolve(Admitted(holder, False))
        return True
    if task.tenant_id in inserted.gone:
        request.refuse(tenants.not_found())
        return True
    bucket = inserted.buckets.get(task.tenant_id)
    if task.is_limited and bucket is not None and bucket.whole_tokens < 1:
        count_refused()
        request.refuse(rate_exceeded(bucket.rate, timedelta(seconds=bucket.seconds_until(1))))
        return True
    # Its bucket or its tenant was locked by another transaction, or its key was just released.
    return False
