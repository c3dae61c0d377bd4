"""What clients, nodes and the leader do to tasks of graphs, many tasks at a time."""

from datetime import UTC, datetime, timedelta

from duly.model.requests.task_request import TaskRequest, complete
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.model.task import Outcome, Reason, Status, Tally
from duly.model.tenant import Credential
from duly.server.admission import dependencies
from duly.server.admission.dependencies import STANDALONE
from duly.store.attempts import leases
from duly.store.attempts.leases import EndedAttempt, SucceededAttempt
from duly.store.fleet import nodes, servers
from duly.store.maintenance import audit, repairs
from duly.store.tasks import edges, graph_operations, tasks
from duly.store.tasks.edges import NewGraph
from duly.store.tasks.graph_operations import GraphOperation, OperationKind, PauseCause
from duly.store.tasks.tasks import NewTask
from tests.store.lawful import BACKSTOP, CLEAN, PLAN

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
AGES = timedelta(days=999)
EVERYTHING = f"""
delete from edges; delete from ended_upstreams; delete from graph_operations; delete from graphs;
{CLEAN}; insert into clock values ('{NOW.isoformat()}')
"""
ROWS = """
select t.id, coalesce(l.status, e.status)::text as status, l.blocked_by,
       coalesce(l.attempt, e.attempt) as attempt,
       e.reason ->> 'code' as code, (e.reason -> 'details' ->> 'upstream')::bigint as upstream,
       (l.id is null) <> (e.task_id is null) as is_one
  from tasks t
  left join live l on l.id = t.id
  left join ends e on e.task_id = t.id
"""
LEFT = "select (select count(*) from live) + (select count(*) from ended_upstreams)"
SOMEBODY = Credential(
    tenant_id=1, tenant="default", user_id=None, user=None, scopes=frozenset(), plan=PLAN
)
OUR_OWN = ("minted_ahead",)
"""What an audit says of every task here, whose ids no server has minted."""


class GraphWorld:
    """A database with one tenant and one node."""

    def __init__(self, conn):
        self.conn = conn
        self._ids = iter(range(679_000_000_000_000_000, 2**62))

    async def begin(self):
        await self.conn.execute(EVERYTHING)
        self.term = await servers.take_over(self.conn, 0, ttl=AGES)
        needs = complete(TaskRequest(command=["true"]), PLAN).resources
        key = tasks.shape_key(Shape(needs))
        self.shape = (await tasks.intern_shapes(self.conn, {key: Shape(needs)}))[key]
        self.node = await nodes.add(self.conn, "n", b"n", {})
        self.incarnation = await nodes.join(
            self.conn, self.node, Resources(), {}, "process", "1", {}, ttl=AGES
        )

    async def submit(self, asked):
        """Store a graph; return its id, and its tasks in the order of the request."""
        specs = [
            complete(TaskRequest(command=["true"], ref=f"r{place}", depends_on=ones), PLAN)
            for place, ones in enumerate(asked)
        ]
        links = dependencies.resolve(specs)
        graph = NewGraph(next(self._ids), None)
        new = []
        for place in range(len(specs)) if links is None else links.topological_order:
            part = STANDALONE if links is None else links.position_of(place)
            new.append(
                NewTask(
                    *(next(self._ids), 1, None, self.shape, specs[place], b""),
                    blocked_by=part.upstream_count,
                    has_dependants=part.has_dependants,
                )
            )
        ids = [task.id for task in new]
        async with self.conn.transaction():
            await tasks.insert(self.conn, new, server=0)
            await edges.insert_graph(self.conn, graph, SOMEBODY, ids)
            if links is not None:
                await dependencies.store_edges(self.conn, 1, links, new, ids)
        return graph.id, ids, ids if links is None else links.in_request_order(ids)

    async def lease(self, numbers):
        """Try to start tasks; return the attempts and tokens of those that do."""
        placements = [(number, self.incarnation, 0, self.shape) for number in numbers]
        given = await leases.lease(
            self.conn, self.term, placements, revision=1, given=None, backstop=BACKSTOP
        )
        return {one.id: (one.attempt, one.token) for one in given}

    async def succeed(self, held):
        """End attempts well; return the tasks that have."""
        if not held:
            return set()
        ended = [
            SucceededAttempt(number, attempt, token, 0, 1.0, 0.5, None, 0, b"", None, None)
            for number, (attempt, token) in held.items()
        ]
        return set(await leases.finish_attempts(self.conn, self.node, ended))

    async def fail(self, held, statuses):
        """End attempts badly, and their tasks, or let these wait for another."""
        if not held:
            return
        asked = [(number, attempt, token) for number, (attempt, token) in held.items()]
        async with self.conn.transaction():
            locked, _ = await leases.lock_attempts(self.conn, self.node, asked)
            ended = [_ended(locked[number], statuses[number]) for number in held]
            await leases.end_attempts(self.conn, ended)

    async def tell(self, limit):
        """Tell dependants of so many ends; say whether there are more."""
        share = -(-limit // 2)  # So that a tenant has several turns.
        return (await edges.resolve(self.conn, self.term, limit=limit, share=share)).has_more

    async def do(self, kind, numbers):
        """Cancel, pause or resume tasks; return those that this changed, and whether they ended."""
        match kind:
            case OperationKind.CANCEL:
                cancelled = await tasks.request_cancel(self.conn, 1, numbers)
                return {number: ran_on is None for number, ran_on in cancelled.items()}
            case OperationKind.PAUSE:
                return dict.fromkeys(
                    await graph_operations.pause(self.conn, 1, numbers, PauseCause()), False
                )
            case OperationKind.RESUME:
                resumed = await graph_operations.resume(self.conn, 1, numbers)
                return {one.id: False for one in resumed}

    async def wish(self, graph, kind):
        """Write down what is to be done to a graph; None if it is being cancelled."""
        made = GraphOperation(1, graph, next(self._ids), kind)
        return made if await graph_operations.begin(self.conn, made) else None

    async def carry(self, wish, limit):
        """Do a piece of a wish; return the tasks, what it changed of them, and if it is over."""
        async with self.conn.transaction():
            piece = await graph_operations.lock_batch(self.conn, wish, limit=limit)
            if piece is None:
                return [], {}, True
            ids, left = piece
            changed = await self.do(wish.kind, ids)
            await graph_operations.advance(self.conn, wish, left)
        return ids, changed, not left

    async def audit(self):
        """Return what an audit finds."""
        late = timedelta(days=1)
        piece = await audit.walk_live(self.conn, (0,), 1000, late=late, grace=late)
        found = [one for one in piece.findings if one.kind not in OUR_OWN]
        return found + (await audit.walk_tasks(self.conn, (0,), 1000)).findings

    async def recount(self, numbers):
        """Count again what tasks wait for; return those of which that was wrong."""
        async with self.conn.transaction():
            return [one for one in numbers if await repairs.recount(self.conn, one)]


def _ended(held, status):
    return EndedAttempt(
        held=held,
        shape_id=held.shape_id,
        outcome=Outcome.CAPPED,
        exit_code=1,
        reason=None,
        started_at=None,
        finished_at=NOW,
        usage=None,
        log_size=0,
        log_tail=b"",
        status=status,
        ready_at=NOW,
        start_by=NOW,
        tally=Tally(held.failures + 1, 0),
        result=None,
        task_reason=None if status is Status.WAITING else Reason("because", "It did."),
    )
