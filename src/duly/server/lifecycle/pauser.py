"""Pauses and resumes tasks. A running attempt is not interrupted, only the next one."""

from collections.abc import Sequence

from duly.model.queues.pause import PauseCause
from duly.model.task import Status
from duly.model.tenant import Credential
from duly.server.scheduling.leader_nudge import LeaderNudge
from duly.store.database import Database, confirm
from duly.store.tasks import graph_operations
from duly.store.tasks.graph_operations import Resumed


class Pauser:
    """Pauses and resumes tasks; running ones continue to the end of their attempts."""

    def __init__(self, database: Database, leader_nudge: LeaderNudge) -> None:
        self._database = database
        self._leader_nudge = leader_nudge

    async def pause(self, credential: Credential, ids: Sequence[int]) -> dict[int, bool]:
        """Pause tasks of the caller's tenant; return the newly paused, True for running ones."""
        cause = PauseCause(by=credential.actor)
        async with self._database.writing_for(credential.tenant_id) as conn:
            paused = await graph_operations.pause(conn, credential.tenant_id, ids, cause)
            if len(paused) < len(ids):
                # A task that is paused may be one that an earlier, unanswered request paused.
                await confirm(conn)
        return paused

    async def resume(self, credential: Credential, ids: Sequence[int]) -> list[Resumed]:
        """Resume paused tasks of the caller's tenant; return them with their new status."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            resumed = await graph_operations.resume(conn, credential.tenant_id, ids)
            if len(resumed) < len(ids):
                await confirm(conn)
        self.notify(credential.tenant_id, resumed)
        return resumed

    def notify(self, tenant_id: int, resumed: Sequence[Resumed]) -> None:
        """Send the leader a hint about resumed tasks, after the commit."""
        waiting = [task for task in resumed if task.status is Status.WAITING]
        pairs = {(tenant_id, task.shape_id) for task in waiting}
        due = any(task.status is Status.SCHEDULED for task in resumed)
        # Subqueues rather than start_by times: cached heads may lack the resumed tasks.
        self._leader_nudge.announce_ready(pairs, due=due)
