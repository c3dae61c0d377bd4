"""Pauses tasks, and lets them go on."""

from collections.abc import Sequence

from duly.model.pause import Cause
from duly.model.task import Status
from duly.model.tenant import Credential
from duly.server.waker import Waker
from duly.store import wishes
from duly.store.database import Database, confirm
from duly.store.wishes import Resumed


class Pauser:
    """Pauses and resumes tasks; those that run go on to the end of their attempts."""

    def __init__(self, database: Database, waker: Waker) -> None:
        self._database = database
        self._waker = waker

    async def pause(self, credential: Credential, ids: Sequence[int]) -> dict[int, bool]:
        """Pause tasks of the caller's tenant; return those that were not, True if they run."""
        cause = Cause(by=credential.actor)
        async with self._database.writing_for(credential.tenant_id) as conn:
            paused = await wishes.pause(conn, credential.tenant_id, ids, cause)
            if len(paused) < len(ids):
                # What is paused already may have been by somebody who got no answer.
                await confirm(conn)
        return paused

    async def resume(self, credential: Credential, ids: Sequence[int]) -> list[Resumed]:
        """Let tasks of the caller's tenant go on that are paused; return them as they are now."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            resumed = await wishes.resume(conn, credential.tenant_id, ids)
            if len(resumed) < len(ids):
                await confirm(conn)
        self.tell(credential.tenant_id, resumed)
        return resumed

    def tell(self, tenant_id: int, resumed: Sequence[Resumed]) -> None:
        """Let whoever leads know what may go on, after the commit."""
        waiting = [one for one in resumed if one.status is Status.WAITING]
        pairs = {(tenant_id, one.shape_id) for one in waiting}
        due = any(one.status is Status.SCHEDULED for one in resumed)
        # Not only from when on they must start: of what is remembered of their lines, they may be.
        self._waker.announce(pairs, due=due)
