"""Cancels what clients cancel, and lets those know who wait for it or run it."""

from collections.abc import Mapping, Sequence

from duly.model.tenant import Credential
from duly.server.bell import Bell
from duly.server.herald import Herald
from duly.server.news import NONE, News
from duly.server.polls import Polls
from duly.server.queue_manager import QueueManager
from duly.store import tasks
from duly.store.database import Database, confirm


class Canceller:
    """Cancels tasks; those that run are asked to stop."""

    def __init__(
        self,
        database: Database,
        queue_manager: QueueManager,
        polls: Polls,
        bell: Bell,
        herald: Herald,
    ) -> None:
        self._database = database
        self._queue_manager = queue_manager
        self._polls = polls
        self._bell = bell
        self._herald = herald

    async def cancel(self, credential: Credential, ids: Sequence[int]) -> dict[int, bool]:
        """Cancel tasks of the caller's tenant; True for those that have ended at once."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            found = await tasks.request_cancel(conn, credential.tenant_id, ids)
            if len(found) < len(ids):
                # What has ended already may have been cancelled by somebody who got no answer.
                await confirm(conn)
        self.tell(found)
        return found

    def tell(self, found: Mapping[int, bool]) -> None:
        """Let others know what was cancelled; True for what has ended at once."""
        self._bell.ring(found)
        runs = not all(found.values())
        if runs:
            self._polls.nudge(None)
        is_due = any(found.values())
        if is_due:
            self._queue_manager.nudge()
        self._herald.tell(
            News(due=is_due, tasks=frozenset(found), incarnations=None if runs else NONE)
        )
