"""Cancels what clients cancel, and lets those know who wait for it or run it."""

from collections.abc import Mapping, Sequence

from duly.model.tenant import Credential
from duly.server.bell import Bell
from duly.server.herald import Herald
from duly.server.news import News
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
        return {task: incarnation is None for task, incarnation in found.items()}

    def tell(self, found: Mapping[int, int | None]) -> None:
        """Let others know what was cancelled, by the incarnation that is to stop it, if any.

        The node may poll at any server, so each of them is told; one wakes its poll at most.
        """
        self._bell.ring(found)
        incarnations = frozenset(one for one in found.values() if one is not None)
        self._polls.nudge(incarnations)
        is_due = None in found.values()
        if is_due:
            self._queue_manager.nudge()
        self._herald.tell(News(due=is_due, tasks=frozenset(found), incarnations=incarnations))
