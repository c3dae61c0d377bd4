"""Changes what tasks ask for that have not started."""

from collections.abc import Mapping
from typing import Any

from duly.errors import Conflict
from duly.model.request import revise
from duly.model.task import NOT_STARTED
from duly.model.tenant import Credential
from duly.server import bundles, unique
from duly.server.replayer import read_spec
from duly.server.shape_book import ShapeBook
from duly.server.waker import Waker
from duly.store import tasks
from duly.store.database import Database


class Updater:
    """Changes tasks, each under the lock of its row."""

    def __init__(self, database: Database, shapes: ShapeBook, waker: Waker) -> None:
        self._database = database
        self._shapes = shapes
        self._waker = waker

    async def update(
        self, credential: Credential, task_id: int, changes: Mapping[str, Any]
    ) -> None:
        """Change what a task asks for that has not started; `changes` are fields of a request.

        With `run_at` among them its time becomes that one, or now when it is null.
        """
        with unique.decided():
            shape = await self._update(credential, task_id, changes)
        self._waker.announce({(credential.tenant_id, shape)}, due=True)

    async def _update(
        self, credential: Credential, task_id: int, changes: Mapping[str, Any]
    ) -> int:
        async with self._database.writing_for(credential.tenant_id) as conn:
            held = await tasks.lock_unstarted(conn, credential.tenant_id, task_id)
            # Read under the lock: of two changes at once, neither may undo the other.
            old = await read_spec(conn, credential, task_id)
            if held is None or held.status not in NOT_STARTED:
                status = "has ended" if held is None else f"is {held.status}"
                raise Conflict(f"The task {status}; only one that has not started can be changed.")
            spec = revise(old.spec, changes, credential.plan)
            if spec.unique is not None:
                holder = await tasks.read_holder(conn, credential.tenant_id, spec.unique.key)
                if holder not in (None, task_id):
                    raise unique.conflict(spec.unique, holder)
            await bundles.change(conn, credential.tenant_id, task_id, old.spec, spec)
            shape = await self._shapes.find(conn, spec)
            ready_at = held.ready_at
            if "run_at" in changes:
                ready_at = max(spec.run_at or held.now, held.now)
            await tasks.update(conn, task_id, shape, spec, ready_at=ready_at, now=held.now)
            await tasks.add_event(
                conn, task_id, credential.tenant_id, "updated", {"fields": sorted(changes)}
            )
        return shape
