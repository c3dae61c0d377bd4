"""What was submitted before under the same idempotency key."""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from duly.errors import KeyReused
from duly.model.allowance import usual
from duly.model.task import OnConflict, TaskSpec
from duly.model.tenant import Credential, Plan
from duly.store import tasks
from duly.store.database import Connection, Database, confirm
from duly.store.tasks import NewTask, Stored, Submission

Known = Mapping[tuple[int, str], Submission]
"""What keys stand for, by tenant and key."""


def hash_of(spec: TaskSpec, plan: Plan) -> bytes:
    """Return what two submissions under one idempotency key must agree on.

    What is as the plan has it counts as not asked for, because the plan may change between the
    two. What is not asked for is left out if earlier versions did not know of it: a key that was
    given to one of them stands for the same task.
    """
    payload = msgspec.structs.replace(
        spec.payload, log_limit=None, result_limit=None, cpu_quota=False, has_upstreams=False
    )
    asked = usual(spec, plan)
    plain = msgspec.structs.replace(spec, payload=payload, idempotency_key=None, **asked)
    body = msgspec.json.encode(plain, order="deterministic")
    # No text can look like these: its quotes would be escaped.
    for younger in (
        b',"concurrency":null',
        b',"unique":null',
        b',"ref":null',
        b',"depends_on":[]',
        b',"queue":null',
    ):
        body = body.replace(younger, b"")
    return hashlib.sha256(body).digest()


def hash_of_batch(new: Sequence[NewTask], plan: Plan) -> bytes:
    """Return what two batches under one idempotency key must agree on."""
    whole = hashlib.sha256()
    for task in new:
        whole.update(hash_of(task.spec, plan))
    return whole.digest()


async def read_known(conn: Connection, new: Sequence[NewTask], stored: Sequence[Stored]) -> Known:
    """Read what the keys stand for that were seen before, and make sure of it."""
    if len(stored) == len(new):
        return {}
    fresh = {one.id for one in stored}
    keys = [
        (task.tenant_id, task.spec.idempotency_key)
        for task in new
        if task.id not in fresh and task.spec.idempotency_key is not None
    ]
    known = await tasks.read_submissions(conn, keys) if keys else {}
    if known:
        await confirm(conn)
    return known


async def read_batch(conn: Connection, tenant_id: int, key: str, body_hash: bytes) -> list[int]:
    """Return the tasks of the batch that was submitted under `key`, and make sure of it."""
    found = await tasks.read_submissions(conn, [(tenant_id, key)])
    await confirm(conn)
    seen = found.get((tenant_id, key))
    if seen is None or seen.batch is None or seen.body_hash != body_hash:
        raise KeyReused(f"The idempotency key {key!r} belongs to another submission.")
    return seen.batch


async def is_known(database: Database, credential: Credential, spec: TaskSpec) -> bool:
    """Say whether nothing will be stored: it was submitted before, or is held and asked for."""
    if await is_seen(database, credential, spec.idempotency_key):
        return True
    if spec.unique is None or spec.unique.on_conflict is not OnConflict.RETURN:
        return False
    async with database.reading_for(credential.tenant_id) as conn:
        return await tasks.read_holder(conn, credential.tenant_id, spec.unique.key) is not None


async def is_seen(database: Database, credential: Credential, key: str | None) -> bool:
    """Say whether an idempotency key was seen before."""
    if key is None:
        return False
    async with database.reading_for(credential.tenant_id) as conn:
        return bool(await tasks.read_submissions(conn, [(credential.tenant_id, key)]))


def same_task(task: NewTask, known: Known) -> Submission | None:
    """Return what the task's key stands for, if it is known.

    Raises KeyReused when that is something else.
    """
    key = task.spec.idempotency_key
    seen = None if key is None else known.get((task.tenant_id, key))
    if seen is None:
        return None
    if seen.body_hash != task.body_hash or seen.batch is not None:
        raise KeyReused(
            f"The idempotency key {key!r} belongs to task {seen.task_id}, which asks for "
            "something else.",
            task=str(seen.task_id),
        )
    return seen
