"""Lets tasks and schedules hold on to the artifacts that they need.

It is done in the transaction that stores them. Whoever has no artifact pays nothing for it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duly.errors import UnknownArtifact
from duly.model.artifact import check_sha256
from duly.model.schedule import Template
from duly.model.task import TaskSpec
from duly.store import artifacts
from duly.store.database import Connection
from duly.store.tasks import NewTask

log = logging.getLogger(__name__)
CHUNK = 2000
"""Uses that go into one statement."""


async def hold(
    conn: Connection, tenant_id: int, new: Sequence[NewTask], ids: Sequence[int]
) -> None:
    """Let tasks that were just stored hold their artifacts; those known before hold theirs.

    `ids` are what the tasks are stored as. Raises UnknownArtifact when there is none of a hash.
    """
    needed = {
        task.id: task.spec.payload.artifact
        for task in new
        if task.spec.payload.artifact is not None
    }
    if needed:
        fresh = needed.keys() & ids
        await _hold(conn, tenant_id, [(bytes.fromhex(needed[one]), one) for one in sorted(fresh)])


async def change(
    conn: Connection, tenant_id: int, task_id: int, old: TaskSpec, new: TaskSpec
) -> None:
    """Let a task that is locked for a change hold what it needs from now on."""
    before, after = old.payload.artifact, new.payload.artifact
    if before == after:
        return
    if before is not None:
        await artifacts.drop_uses(conn, tenant_id, task_id)
    if after is not None:
        await _hold(conn, tenant_id, [(bytes.fromhex(after), task_id)])


async def hold_for_schedule(
    conn: Connection, template: Template, before: Template | None = None
) -> None:
    """Let a schedule hold what the tasks that it submits will need, and nothing of `before`."""
    named = _named(template)
    earlier = set() if before is None else _named(before)
    if named == earlier:
        return
    if earlier:
        await artifacts.drop_uses(conn, template.tenant_id, template.id)
    # What is said for all tasks of a graph, and by each of them otherwise, nobody has looked at.
    uses = [(check_sha256(one, "artifact"), template.id) for one in sorted(named)]
    await _hold(conn, template.tenant_id, uses)


async def hold_for_occurrences(conn: Connection, new: Iterable[NewTask]) -> None:
    """Let the tasks of schedules, of any tenants, hold what their schedules hold as well.

    So it is there; and if it were not, the others would fire all the same.
    """
    uses: dict[int, list[tuple[bytes, int]]] = {}
    for task in new:
        if task.spec.payload.artifact is not None:
            needed = bytes.fromhex(task.spec.payload.artifact)
            uses.setdefault(task.tenant_id, []).append((needed, task.id))
    for tenant_id, several in sorted(uses.items()):
        unknown = await artifacts.use(conn, tenant_id, several)
        for one in unknown:
            log.error("a schedule names an artifact that is gone", extra={"sha256": one.hex()})


def _named(template: Template) -> set[str]:
    """Return the hashes that a template names, in a task or anywhere in a graph."""
    found: list[Mapping[str, Any]] = [template.task or {}]
    if template.graph is not None:
        found += [*template.graph["tasks"], template.graph.get("defaults") or {}]
    return {one["artifact"] for one in found if one.get("artifact") is not None}


async def _hold(conn: Connection, tenant_id: int, uses: Sequence[tuple[bytes, int]]) -> None:
    for first in range(0, len(uses), CHUNK):
        unknown = await artifacts.use(conn, tenant_id, uses[first : first + CHUNK])
        if unknown:
            raise unknown_artifact(min(unknown).hex())


def unknown_artifact(sha256: str) -> UnknownArtifact:
    """Return what is told when a tenant has no such artifact."""
    return UnknownArtifact(
        "artifact",
        f"There is no artifact {sha256}; upload it first: PUT /v1/artifacts/{sha256}.",
        artifact=sha256,
    )
