"""Finds earlier submissions with the same idempotency key.

A repeated submission returns the tasks of the first one. Two submissions under one key must have
the same body; their hashes are compared.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from duly.errors import KeyReused
from duly.model.requests.allowance import without_plan_defaults
from duly.model.task import Call, OnConflict, TaskSpec
from duly.model.tenant import Credential, Plan
from duly.store.database import Connection, Database, confirm
from duly.store.tasks import tasks
from duly.store.tasks.tasks import NewTask, StoredTask, Submission

SubmissionsByKey = Mapping[tuple[int, str], Submission]
"""Earlier submissions by tenant and idempotency key."""


def hash_spec(spec: TaskSpec, plan: Plan) -> bytes:
    """Return the hash on which two submissions under one idempotency key must agree.

    A value that equals the plan's default counts as not set, because the plan may change between
    the two. Unset fields that earlier versions did not have are left out, so that a key that was
    used with such a version still matches.
    """
    payload = msgspec.structs.replace(
        spec.payload,
        call=None if spec.payload.call is None else _normalized(spec.payload.call, spec, plan),
        log_limit=None,
        result_limit=None,
        cpu_quota=False,
        has_upstreams=False,
    )
    defaults = without_plan_defaults(spec, plan)
    normalized = msgspec.structs.replace(
        spec, payload=payload, idempotency_key=None, user_id=None, tenant_id=None, **defaults
    )
    body = msgspec.json.encode(normalized, order="deterministic")
    # Text in the body cannot match these: its quotes are escaped.
    for unset_field in (
        b',"concurrency":null',
        b',"unique":null',
        b',"ref":null',
        b',"depends_on":[]',
        b',"queue":null',
        b',"user_id":null',
        b',"tenant_id":null',
    ):
        body = body.replace(unset_field, b"")
    return hashlib.sha256(body).digest()


def _normalized(call: Call, spec: TaskSpec, plan: Plan) -> Call:
    """Return a call with its arguments written in one way, and without the memory of its tier.

    Its arguments were checked when it was submitted, so they can be decoded.
    """
    arguments = call.arguments
    if arguments:
        value = msgspec.json.decode(arguments)
        arguments = msgspec.json.encode(value, order="deterministic").decode()
    tier = plan.known_tiers.get(spec.tier or "")
    is_of_tier = tier is not None and tier.memory_mb == call.memory_mb
    memory_mb = 0 if is_of_tier else call.memory_mb
    return msgspec.structs.replace(call, arguments=arguments, memory_mb=memory_mb)


def hash_batch(new: Sequence[NewTask], plan: Plan) -> bytes:
    """Return the hash on which two batches under one idempotency key must agree."""
    digest = hashlib.sha256()
    for task in new:
        digest.update(hash_spec(task.spec, plan))
    return digest.digest()


async def read_earlier(
    conn: Connection, new: Sequence[NewTask], stored: Sequence[StoredTask]
) -> SubmissionsByKey:
    """Return the earlier submissions of tasks that were not stored, once they are durable."""
    if len(stored) == len(new):
        return {}
    stored_ids = {task.id for task in stored}
    keys = [
        (task.tenant_id, task.spec.idempotency_key)
        for task in new
        if task.id not in stored_ids and task.spec.idempotency_key is not None
    ]
    earlier = await tasks.read_submissions(conn, keys) if keys else {}
    if earlier:
        await confirm(conn)
    return earlier


async def read_earlier_batch(
    conn: Connection, tenant_id: int, key: str, body_hash: bytes
) -> list[int]:
    """Return the tasks of the earlier batch under `key`, once they are durable.

    Raises KeyReused if the key belongs to a different submission.
    """
    submissions = await tasks.read_submissions(conn, [(tenant_id, key)])
    await confirm(conn)
    earlier = submissions.get((tenant_id, key))
    if earlier is None or earlier.batch is None or earlier.body_hash != body_hash:
        raise KeyReused(f"The idempotency key {key!r} was used for another request. Use a new key.")
    return earlier.batch


async def is_duplicate(database: Database, credential: Credential, spec: TaskSpec) -> bool:
    """Return True if `spec` stores no task: its key was used, or it asks for a key's holder."""
    if await is_key_used(database, credential, spec.idempotency_key):
        return True
    if spec.unique is None or spec.unique.on_conflict is not OnConflict.RETURN:
        return False
    async with database.reading_for(credential.tenant_id) as conn:
        return await tasks.read_holder(conn, credential.tenant_id, spec.unique.key) is not None


async def is_key_used(database: Database, credential: Credential, key: str | None) -> bool:
    """Return True if an idempotency key was used before."""
    if key is None:
        return False
    async with database.reading_for(credential.tenant_id) as conn:
        return bool(await tasks.read_submissions(conn, [(credential.tenant_id, key)]))


def find_duplicate(task: NewTask, earlier: SubmissionsByKey) -> Submission | None:
    """Return the earlier submission of the same task, if there is one.

    Raises KeyReused if the task's key belongs to a different submission.
    """
    key = task.spec.idempotency_key
    duplicate = None if key is None else earlier.get((task.tenant_id, key))
    if duplicate is None:
        return None
    if duplicate.body_hash != task.body_hash or duplicate.batch is not None:
        raise KeyReused(
            f"The idempotency key {key!r} was used for task {duplicate.task_id}, which differs "
            "from this one. Use a new key.",
            task=str(duplicate.task_id),
        )
    return duplicate
