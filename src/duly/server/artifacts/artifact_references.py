"""Records which tasks and schedules use an artifact, so that it is kept.

References are written in the transaction that stores the task or schedule. Those without an
artifact cost nothing.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duly.errors import UnknownArtifact
from duly.model.artifact import check_sha256
from duly.model.schedules.schedule import ScheduleTemplate
from duly.model.task import TaskSpec
from duly.store.database import Connection
from duly.store.tasks import artifacts
from duly.store.tasks.tasks import NewTask

log = logging.getLogger(__name__)
USES_PER_STATEMENT = 2000
"""References written by one statement."""


async def add(conn: Connection, tenant_id: int, new: Sequence[NewTask], ids: Sequence[int]) -> None:
    """Add the references of newly stored tasks; repeated submissions have theirs already.

    `ids` are the ids under which the tasks are stored: a repeated one has another id than its
    new task. Raises UnknownArtifact when the tenant has no artifact of a hash.
    """
    needed = {
        task.id: task.spec.payload.artifact
        for task in new
        if task.spec.payload.artifact is not None
    }
    if needed:
        fresh = needed.keys() & ids
        await _add(conn, tenant_id, [(bytes.fromhex(needed[task]), task) for task in sorted(fresh)])


async def update(
    conn: Connection, tenant_id: int, task_id: int, old: TaskSpec, new: TaskSpec
) -> None:
    """Replace the reference of a task whose row is locked for an update."""
    before, after = old.payload.artifact, new.payload.artifact
    if before == after:
        return
    if before is not None:
        await artifacts.drop_uses(conn, tenant_id, task_id)
    if after is not None:
        await _add(conn, tenant_id, [(bytes.fromhex(after), task_id)])


async def add_for_schedule(
    conn: Connection, template: ScheduleTemplate, before: ScheduleTemplate | None = None
) -> None:
    """Add the references of a schedule's tasks, replacing those of its template `before`."""
    named = _named_hashes(template)
    earlier = set() if before is None else _named_hashes(before)
    if named == earlier:
        return
    if earlier:
        await artifacts.drop_uses(conn, template.tenant_id, template.id)
    # A graph's default that every task overrides has not been validated elsewhere.
    uses = [(check_sha256(sha256, "artifact"), template.id) for sha256 in sorted(named)]
    await _add(conn, template.tenant_id, uses)


async def add_for_occurrences(conn: Connection, new: Iterable[NewTask]) -> None:
    """Add the references of the tasks of schedules, of any tenants.

    Their schedules reference the same artifacts, so these exist; if one did not, it must not
    keep other schedules from firing, so it is only logged.
    """
    uses: dict[int, list[tuple[bytes, int]]] = {}
    for task in new:
        if task.spec.payload.artifact is not None:
            needed = bytes.fromhex(task.spec.payload.artifact)
            uses.setdefault(task.tenant_id, []).append((needed, task.id))
    for tenant_id, tenant_uses in sorted(uses.items()):
        unknown = await artifacts.add_uses(conn, tenant_id, tenant_uses)
        for sha256 in unknown:
            log.error("a schedule uses an artifact that is gone", extra={"sha256": sha256.hex()})


def _named_hashes(template: ScheduleTemplate) -> set[str]:
    """Return the hashes that a template names, in a task or anywhere in a graph."""
    requests: list[Mapping[str, Any]] = [template.task or {}]
    if template.graph is not None:
        requests += [*template.graph["tasks"], template.graph.get("defaults") or {}]
    return {request["artifact"] for request in requests if request.get("artifact") is not None}


async def _add(conn: Connection, tenant_id: int, uses: Sequence[tuple[bytes, int]]) -> None:
    for first in range(0, len(uses), USES_PER_STATEMENT):
        unknown = await artifacts.add_uses(
            conn, tenant_id, uses[first : first + USES_PER_STATEMENT]
        )
        if unknown:
            raise unknown_artifact(min(unknown).hex())


def unknown_artifact(sha256: str) -> UnknownArtifact:
    """Return the error for an artifact that the tenant does not have."""
    return UnknownArtifact(
        "artifact",
        f"there is no artifact {sha256!r}. Upload it first: PUT /v1/artifacts/{sha256}",
        artifact=sha256,
    )
