"""Cancels, pauses and resumes whole graphs, in pieces.

What is wished of a graph is committed first. Whoever was asked goes on with it, piece by
piece, for as long as the client waits; the leader goes on with what was left lying, because
the client asked for much, or a server died.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import msgspec

from duly.errors import Conflict, NotFound
from duly.model.pause import Cause
from duly.model.task import Status
from duly.model.tenant import Credential
from duly.server.canceller import Canceller
from duly.server.cluster_manager import ClusterManager
from duly.server.pauser import Pauser
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.store import servers, tasks, wishes
from duly.store.database import Connection, Database
from duly.store.servers import Term
from duly.store.wishes import Wish, WishKind

PIECE = 500
"""Tasks of one transaction, which holds their rows."""
INTERVAL = timedelta(seconds=5)
ABANDONED = timedelta(seconds=5)
"""So long nobody has gone on with a wish whose server is dead, or has other things to do."""


class Carried(msgspec.Struct, frozen=True):
    """What one piece of a wish did."""

    changed: int
    """Tasks that were cancelled, asked to stop, paused or resumed."""
    running: int
    """Those of them that run."""
    is_over: bool


OVER = Carried(0, 0, is_over=True)


class Wishes(Service):
    """Carries out what is wished of graphs."""

    def __init__(
        self,
        database: Database,
        cluster_manager: ClusterManager,
        sequencer: Sequencer,
        canceller: Canceller,
        pauser: Pauser,
    ) -> None:
        super().__init__(INTERVAL)
        self._database = database
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._canceller = canceller
        self._pauser = pauser

    async def make(self, credential: Credential, graph_id: int, kind: WishKind) -> Wish:
        """Write down what is to be done to a graph: from now on it will be."""
        wish = Wish(credential.tenant_id, graph_id, self._sequencer.mint(), kind)
        async with self._database.writing_for(wish.tenant_id) as conn:
            if not await wishes.make(conn, wish):
                if await wishes.read_kind(conn, wish.tenant_id, graph_id) is None:
                    raise NotFound(f"There is no graph {graph_id}.")
                raise Conflict("The graph is being cancelled.")
        return wish

    async def go_on(self, wish: Wish) -> Carried:
        """Do one piece of a wish of the caller's tenant."""
        async with self._database.writing_for(wish.tenant_id) as conn:
            carried, tell = await self._carry(conn, wish)
        tell()
        return carried

    async def tick(self) -> bool:
        """Go on with a wish that was left lying, to its end."""
        term = self._cluster_manager.term
        if term is None:
            return False
        async with self._database.connection() as conn:
            wish = await wishes.read_abandoned(conn, ABANDONED)
        if wish is None:
            return False
        is_over = False
        while not is_over:
            is_over = (await self._go_on_leading(wish, term)).is_over
        return True

    async def _go_on_leading(self, wish: Wish, term: Term) -> Carried:
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            carried, tell = await self._carry(conn, wish)
        tell()
        return carried

    async def _carry(self, conn: Connection, wish: Wish) -> tuple[Carried, Callable[[], None]]:
        """Do one piece; return what it did, and what lets others know, after the commit."""
        piece = await wishes.take_piece(conn, wish, limit=PIECE)
        if piece is None:
            return OVER, _tell_nobody
        ids, left = piece
        tell: Callable[[], None] = _tell_nobody
        match wish.kind:
            case WishKind.CANCEL:
                cancelled = await tasks.request_cancel(conn, wish.tenant_id, ids)
                count = len(cancelled)
                running = sum(incarnation is not None for incarnation in cancelled.values())
                tell = partial(self._canceller.tell, cancelled)
            case WishKind.PAUSE:
                cause = Cause(graph=str(wish.graph_id))
                paused = await wishes.pause(conn, wish.tenant_id, ids, cause)
                count, running = len(paused), sum(paused.values())
            case WishKind.RESUME:
                resumed = await wishes.resume(conn, wish.tenant_id, ids)
                count = len(resumed)
                running = sum(one.status is Status.RUNNING for one in resumed)
                tell = partial(self._pauser.tell, wish.tenant_id, resumed)
        await wishes.move(conn, wish, left)
        return Carried(count, running, is_over=not left), tell


def _tell_nobody() -> None:
    """Do nothing: what was done is of no concern to anybody who waits."""
