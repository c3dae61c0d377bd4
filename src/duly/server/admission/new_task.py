"""Builds the row of a task from its spec, its id and the credential that submits it."""

import msgspec

from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server.admission import idempotency
from duly.server.admission.dependencies import STANDALONE, GraphPosition
from duly.server.scheduling.run_times import RunTimes
from duly.store.tasks.tasks import NewTask


def with_owner(
    spec: TaskSpec, tenant_id: int, *, fair_users: bool, user_id: int | None
) -> TaskSpec:
    """Return a spec with what of its owner decides where and when it may run.

    The tenant decides which workers may run a call; the user matters only if the users of the
    tenant divide its fair share.
    """
    if fair_users:
        spec = msgspec.structs.replace(spec, user_id=user_id or 0)
    return spec if spec.payload.call is None else msgspec.structs.replace(spec, tenant_id=tenant_id)


def owned_by(spec: TaskSpec, credential: Credential) -> TaskSpec:
    """Return a spec that the holder of a credential submits; see `with_owner`."""
    return with_owner(
        spec,
        credential.tenant_id,
        fair_users=credential.fair_users,
        user_id=credential.user_id,
    )


def new_task(
    task_id: int,
    credential: Credential,
    spec: TaskSpec,
    shape_id: int,
    run_times: RunTimes,
    *,
    is_limited: bool = False,
    position: GraphPosition = STANDALONE,
    graph_id: int | None = None,
) -> NewTask:
    """Return a task to be stored, at its `position` among the tasks submitted with it."""
    return NewTask(
        id=task_id,
        tenant_id=credential.tenant_id,
        user_id=credential.user_id,
        shape_id=shape_id,
        spec=spec,
        body_hash=b""
        if spec.idempotency_key is None
        else idempotency.hash_spec(spec, credential.plan),
        is_limited=is_limited,
        blocked_by=position.upstream_count,
        has_dependants=position.has_dependants,
        graph_id=graph_id,
        inherited=position.inherited,
        run_time=run_times.estimate(credential.tenant_id, spec.name),
    )
