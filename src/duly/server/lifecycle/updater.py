"""Updates the specs of tasks that have not started."""

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.errors import Conflict
from duly.model.requests.task_request import revise
from duly.model.task import NOT_RUNNING, status_clause
from duly.model.tenant import Credential
from duly.server.admission import unique_keys
from duly.server.admission.shape_ids import ShapeIds
from duly.server.artifacts import artifact_references
from duly.server.lifecycle.replayer import read_spec
from duly.server.scheduling.leader_nudge import LeaderNudge
from duly.server.scheduling.run_times import RunTimes
from duly.store.database import Database
from duly.store.tasks import tasks


class Updater:
    """Updates tasks, each under its row lock."""

    def __init__(
        self,
        database: Database,
        shapes: ShapeIds,
        run_times: RunTimes,
        leader_nudge: LeaderNudge,
    ) -> None:
        self._database = database
        self._shapes = shapes
        self._run_times = run_times
        self._leader_nudge = leader_nudge

    async def update(
        self, credential: Credential, task_id: int, changes: Mapping[str, Any]
    ) -> None:
        """Change fields of a task that has not started; `changes` are fields of a request.

        `run_at` also sets when the task is ready: null means now.
        """
        with unique_keys.violations_as_conflicts():
            shape_id = await self._update(credential, task_id, changes)
        self._leader_nudge.announce_ready({(credential.tenant_id, shape_id)}, due=True)

    async def _update(
        self, credential: Credential, task_id: int, changes: Mapping[str, Any]
    ) -> int:
        async with self._database.writing_for(credential.tenant_id) as conn:
            held = await tasks.lock_unstarted(conn, credential.tenant_id, task_id)
            # Read under the lock, so that concurrent updates do not undo each other.
            old = await read_spec(conn, credential, task_id)
            if held is None or held.status not in NOT_RUNNING:
                status = "has ended" if held is None else status_clause(held.status)
                raise Conflict(
                    f"Task {task_id} {status}; only a task that has not started can be changed."
                )
            spec = revise(old.spec, changes, credential.plan)
            if spec.payload.call is not None:
                spec = msgspec.structs.replace(spec, tenant_id=credential.tenant_id)
            if spec.unique is not None:
                holder = await tasks.read_holder(conn, credential.tenant_id, spec.unique.key)
                if holder not in (None, task_id):
                    raise unique_keys.conflict_error(spec.unique, holder)
            await artifact_references.update(conn, credential.tenant_id, task_id, old.spec, spec)
            shape_id = await self._shapes.intern(conn, spec)
            ready_at = held.ready_at
            if "run_at" in changes:
                ready_at = max(spec.run_at or held.now, held.now)
            run_time = self._run_times.estimate(credential.tenant_id, spec.name)
            await tasks.update(
                conn, task_id, shape_id, spec, ready_at=ready_at, now=held.now, run_time=run_time
            )
            await tasks.add_event(
                conn, task_id, credential.tenant_id, "updated", {"fields": sorted(changes)}
            )
        return shape_id
