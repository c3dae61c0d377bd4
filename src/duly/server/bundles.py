"""Lets tasks and schedules hold on to the artifacts that they need.

It is done in the transaction that stores them. Whoever has no artifact pays nothing for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duly.errors import UnknownArtifact
from duly.model.task import TaskSpec
from duly.server.turns import pieces
from duly.store import artifacts
from duly.store.database import Connection
from duly.store.tasks import NewTask

CHUNK = 2000
"""Uses that go into one statement."""


async def hold(
    conn: Connection, tenant_id: int, new: Sequence[NewTask], ids: Sequence[int]
) -> None:
    """Let tasks that were just stored hold their artifacts; those known before hold theirs.

    `ids` are what the tasks are stored as. Raises UnknownArtifact when there is none of a hash.
    """
    needed: dict[int, str] = {}
    async for piece in pieces(new):
        for task in piece:
            if task.spec.payload.artifact is not None:
                needed[task.id] = task.spec.payload.artifact
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
    conn: Connection, tenant_id: int, schedule_id: int, named: Iterable[str]
) -> None:
    """Let a schedule hold what the tasks that it submits will need, and nothing else."""
    await artifacts.drop_uses(conn, tenant_id, schedule_id)
    await _hold(conn, tenant_id, [(bytes.fromhex(one), schedule_id) for one in sorted(set(named))])


def named_in(task: Mapping[str, Any] | None, graph: Mapping[str, Any] | None) -> set[str]:
    """Return the hashes that a template names, in a task or anywhere in a graph."""
    found: list[Mapping[str, Any]] = [task or {}]
    if graph is not None:
        found += [*graph["tasks"], graph.get("defaults") or {}]
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
