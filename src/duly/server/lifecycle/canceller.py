"""Cancels tasks on request, and notifies the clients that wait for them and the nodes they run on.

A task that is not running ends in the same transaction. A running one is marked, and ends when
its agent has stopped the process and reports it.
"""

from collections.abc import Mapping, Sequence

from duly.model.tenant import Credential
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.server.cluster.wakeups import Wakeups
from duly.server.delivery.polls import Polls
from duly.server.lifecycle.queue_manager import QueueManager
from duly.store.database import Database, confirm
from duly.store.tasks import tasks


class Canceller:
    """Cancels tasks; running ones are asked to stop."""

    def __init__(
        self,
        database: Database,
        queue_manager: QueueManager,
        polls: Polls,
        wakeups: Wakeups,
        server_bus: ServerBus,
    ) -> None:
        self._database = database
        self._queue_manager = queue_manager
        self._polls = polls
        self._wakeups = wakeups
        self._server_bus = server_bus

    async def cancel(self, credential: Credential, ids: Sequence[int]) -> dict[int, bool]:
        """Cancel live tasks of the caller's tenant; True for each that ended at once."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            cancelled = await tasks.request_cancel(conn, credential.tenant_id, ids)
            if len(cancelled) < len(ids):
                # A task that has ended may be one that an earlier, unanswered request cancelled.
                await confirm(conn)
        self.notify(cancelled)
        return {task: incarnation is None for task, incarnation in cancelled.items()}

    def notify(self, cancelled: Mapping[int, int | None]) -> None:
        """Announce cancelled tasks, each with the incarnation that runs it, after the commit.

        A node may poll any server, so all servers get the hint; at most one has its poll to wake.
        """
        self._wakeups.wake(cancelled)
        incarnations = frozenset(
            incarnation for incarnation in cancelled.values() if incarnation is not None
        )
        self._polls.nudge(incarnations)
        is_due = None in cancelled.values()
        if is_due:
            self._queue_manager.nudge()
        self._server_bus.publish(
            Hint(due=is_due, tasks=frozenset(cancelled), incarnations=incarnations)
        )
