"""Marks tasks as done or failed on behalf of a person or another system.

The task ends in one transaction, whatever it was doing; what follows is as after any other end. An
attempt that runs loses its fence: its node is told to kill it, and its report only says that its
resources are free.

Decision: docs/adr/0030-stopping-attempts.md.
"""

from duly import telemetry
from duly.config import Settings
from duly.errors import Conflict
from duly.model.requests.mark_request import Mark, check_result_size
from duly.model.task import Outcome, status_clause
from duly.model.tenant import Credential
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.server.delivery.polls import Polls
from duly.server.lifecycle.queue_manager import QueueManager
from duly.server.lifecycle.replayer import read_spec
from duly.store.accounts import audit_log
from duly.store.database import Connection, Database, confirm
from duly.store.tasks import marks
from duly.store.tasks.marks import Marked


class Marker:
    """Ends tasks as somebody outside has decided."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        queue_manager: QueueManager,
        polls: Polls,
        server_bus: ServerBus,
    ) -> None:
        self._database = database
        self._result_limit = settings.execution.result_limit
        self._queue_manager = queue_manager
        self._polls = polls
        self._server_bus = server_bus

    async def mark(self, credential: Credential, task_id: int, mark: Mark) -> None:
        """End a task of the caller's tenant; raises NotFound, Invalid, or Conflict if it has ended.

        Repeating a mark changes nothing, so that a call without an answer can be made again.
        """
        async with self._database.writing_for(credential.tenant_id) as conn:
            stored = await read_spec(conn, credential, task_id)
            check_result_size(mark, stored.spec.payload.result_bytes(self._result_limit))
            marked = await marks.mark(
                conn,
                credential.tenant_id,
                task_id,
                status=mark.status,
                reason=mark.reason(credential.actor),
                result=mark.result,
            )
            if marked is None:
                await _check_repeated(conn, credential, task_id, mark)
                await confirm(conn)
            else:
                await _record(conn, credential, task_id, mark)
        if marked is not None:
            self._notify(task_id, marked)

    def _notify(self, task_id: int, marked: Marked) -> None:
        """Announce the end, after the commit. The node may poll any server."""
        self._queue_manager.notify_marked(task_id)
        if marked.incarnation_id is not None:
            telemetry.ATTEMPTS_ENDED.labels(Outcome.CANCELLED.value).inc()
            incarnations = frozenset({marked.incarnation_id})
            self._polls.nudge(incarnations)
            self._server_bus.publish(Hint(incarnations=incarnations))


async def _check_repeated(
    conn: Connection, credential: Credential, task_id: int, mark: Mark
) -> None:
    """Raise Conflict unless the task has ended by the same mark."""
    end = await marks.read_end(conn, credential.tenant_id, task_id)
    if end is None:
        raise Conflict(f"Task {task_id} has ended; only a task that has not ended can be marked.")
    if not (end.is_marked and end.status is mark.status):
        raise Conflict(
            f"Task {task_id} {status_clause(end.status)}; only a task that has not ended can be "
            "marked.",
            status=end.status,
        )


async def _record(conn: Connection, credential: Credential, task_id: int, mark: Mark) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action="task.mark",
        target=str(task_id),
        tenant_id=credential.tenant_id,
        details={"status": mark.status, "reason": mark.text},
    )
