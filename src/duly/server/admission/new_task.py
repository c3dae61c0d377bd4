"""Makes of what is asked for a task that can be stored: with its id, and with who asks."""

from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server import repeats
from duly.server.linker import ALONE, Part
from duly.store.tasks import NewTask


def new_task(
    task_id: int,
    credential: Credential,
    spec: TaskSpec,
    shape_id: int,
    *,
    is_limited: bool = False,
    part: Part = ALONE,
    graph_id: int | None = None,
) -> NewTask:
    """Return a task to be stored; `part` says what it is among those it is submitted with."""
    return NewTask(
        id=task_id,
        tenant_id=credential.tenant_id,
        user_id=credential.user_id,
        shape_id=shape_id,
        spec=spec,
        body_hash=b"" if spec.idempotency_key is None else repeats.hash_of(spec, credential.plan),
        is_limited=is_limited,
        blocked_by=part.edges,
        has_dependants=part.has_dependants,
        graph_id=graph_id,
        ahead=part.ahead,
    )
