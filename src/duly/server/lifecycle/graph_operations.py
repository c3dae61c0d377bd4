"""Cancels, pauses and resumes whole graphs, in batches.

The operation is committed first, so it survives the request. The server that received it
applies it batch by batch while the client waits; the leader finishes operations that were
abandoned because the graph is large or a server died.

Decision: docs/adr/0022-graph-operations.md.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import msgspec

from duly.errors import Conflict, NotFound
from duly.model.queues.pause import PauseCause
from duly.model.task import Status
from duly.model.tenant import Credential
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.lifecycle.canceller import Canceller
from duly.server.lifecycle.pauser import Pauser
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.store.database import Connection, Database
from duly.store.fleet import servers
from duly.store.fleet.servers import Term
from duly.store.tasks import graph_operations, tasks
from duly.store.tasks.graph_operations import GraphOperation, OperationKind

TASKS_PER_BATCH = 500
"""Tasks changed in one transaction, which locks their rows."""
CHECK_INTERVAL = timedelta(seconds=5)
ABANDONED_AFTER = timedelta(seconds=5)
"""An operation that has made no progress for this long is taken over by the leader."""


class OperationProgress(msgspec.Struct, frozen=True):
    """What one batch of an operation did, or several together."""

    changed: int
    """Tasks that were cancelled, asked to stop, paused or resumed."""
    running: int
    """How many of these are running."""
    is_over: bool
    """Whether the operation is complete."""


NOTHING_LEFT = OperationProgress(0, 0, is_over=True)


class GraphOperations(Service):
    """Applies operations to graphs."""

    def __init__(
        self,
        database: Database,
        cluster_manager: ClusterManager,
        sequencer: Sequencer,
        canceller: Canceller,
        pauser: Pauser,
    ) -> None:
        super().__init__(CHECK_INTERVAL)
        self._database = database
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._canceller = canceller
        self._pauser = pauser

    async def request(
        self, credential: Credential, graph_id: int, kind: OperationKind
    ) -> GraphOperation:
        """Commit an operation on a graph; from then on it will be carried out."""
        operation = GraphOperation(credential.tenant_id, graph_id, self._sequencer.mint(), kind)
        async with self._database.writing_for(operation.tenant_id) as conn:
            if not await graph_operations.begin(conn, operation):
                if await graph_operations.read_kind(conn, operation.tenant_id, graph_id) is None:
                    raise NotFound(f"There is no graph {str(graph_id)!r}.", kind="graph")
                raise Conflict(f"Graph {graph_id} is being cancelled.")
        return operation

    async def run_batch(self, operation: GraphOperation) -> OperationProgress:
        """Apply the next batch of an operation on behalf of its tenant."""
        async with self._database.writing_for(operation.tenant_id) as conn:
            progress, notify = await self._apply_batch(conn, operation)
        notify()
        return progress

    async def tick(self) -> bool:
        """Finish one abandoned operation; return whether there was one."""
        term = self._cluster_manager.term
        if term is None:
            return False
        async with self._database.connection() as conn:
            operation = await graph_operations.read_abandoned(conn, ABANDONED_AFTER)
        if operation is None:
            return False
        is_over = False
        while not is_over:
            is_over = (await self._run_batch_as_leader(operation, term)).is_over
        return True

    async def _run_batch_as_leader(
        self, operation: GraphOperation, term: Term
    ) -> OperationProgress:
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            progress, notify = await self._apply_batch(conn, operation)
        notify()
        return progress

    async def _apply_batch(
        self, conn: Connection, operation: GraphOperation
    ) -> tuple[OperationProgress, Callable[[], None]]:
        """Apply one batch; return its progress, and the notification to send after the commit."""
        batch = await graph_operations.lock_batch(conn, operation, limit=TASKS_PER_BATCH)
        if batch is None:
            return NOTHING_LEFT, _notify_nobody
        ids, left = batch
        notify: Callable[[], None] = _notify_nobody
        match operation.kind:
            case OperationKind.CANCEL:
                cancelled = await tasks.request_cancel(conn, operation.tenant_id, ids)
                count = len(cancelled)
                running = sum(incarnation is not None for incarnation in cancelled.values())
                notify = partial(self._canceller.notify, cancelled)
            case OperationKind.PAUSE:
                cause = PauseCause(graph=str(operation.graph_id))
                paused = await graph_operations.pause(conn, operation.tenant_id, ids, cause)
                count, running = len(paused), sum(paused.values())
            case OperationKind.RESUME:
                resumed = await graph_operations.resume(conn, operation.tenant_id, ids)
                count = len(resumed)
                running = sum(task.status is Status.RUNNING for task in resumed)
                notify = partial(self._pauser.notify, operation.tenant_id, resumed)
        await graph_operations.advance(conn, operation, left)
        return OperationProgress(count, running, is_over=not left), notify


def _notify_nobody() -> None:
    """Do nothing: no caller and no component waits for a pause."""
