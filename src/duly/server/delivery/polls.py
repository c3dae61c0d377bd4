"""Tells the nodes what to start and what to end.

Nodes learn of their attempts by polling. A poll says what the agent holds; the
answer is whatever else the database says it should hold. So nothing needs to be
acknowledged, and a lost answer is simply given again.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from duly import clock, wire
from duly.config import Settings
from duly.errors import Fenced
from duly.model.shape import Shape
from duly.server.bell import Bell
from duly.server.deliveries import Box, Deliveries
from duly.server.herald import Herald
from duly.server.holdings import Holdings
from duly.server.news import Ids, News
from duly.store import nodes
from duly.store.database import Connection, Database, confirm
from duly.store.lanes import Lane
from duly.store.leases import Lease
from duly.store.waiting import Head

RECHECK = timedelta(seconds=1)
"""How often a waiting poll looks again, in case that nobody told it."""


class Polls:
    """Answers polls and heartbeats with what the node is to start and to end."""

    def __init__(self, database: Database, settings: Settings, herald: Herald) -> None:
        self._database = database
        self._settings = settings
        self._herald = herald
        self._waiting = Bell()
        self._deliveries = Deliveries()
        self._holdings = Holdings()

    def awaited(self, incarnations: Iterable[int]) -> set[int]:
        """Return those of `incarnations` whose next poll can be answered without a look."""
        return self._deliveries.awaited(incarnations, self._patience)

    def hand_over(
        self, leased: Sequence[Lease], shapes: Mapping[int, Shape], window: Iterable[Head]
    ) -> None:
        """Let the polls know that wait for what has been leased of a window; it is committed."""
        tenants = {head.id: head.tenant_id for head in window}
        starts: defaultdict[int, list[wire.Assignment]] = defaultdict(list)
        for one in leased:
            if one.told is not None:
                needs = shapes[one.told.shape_id].needs
                start = one.start(needs, tenants[one.id])
                starts[one.incarnation_id].append(self._assignment(start))
        self._deliveries.put(starts)
        incarnations = {one.incarnation_id for one in leased}
        self._deliveries.doubt(incarnations - starts.keys())
        # A node that waits here waits nowhere else; one that does not may wait at any server.
        elsewhere = self._waiting.ring(incarnations)
        self._herald.tell(News(incarnations=frozenset(elsewhere)))

    def hear(self, told: News) -> None:
        """Take in what another server told: orders for nodes that poll here."""
        self.nudge(told.incarnations)

    def nudge(self, incarnations: Ids) -> None:
        """Let waiting polls of these incarnations look again now."""
        self._deliveries.doubt(incarnations)
        if incarnations is None:
            self._waiting.ring_all()
        else:
            self._waiting.ring(incarnations)

    @property
    def _patience(self) -> float:
        """Return for how many seconds a poll is without a look."""
        return self._waiting.patience(RECHECK.total_seconds())

    async def orders(self, node_id: int, poll: wire.Poll) -> wire.Orders:
        """Answer a poll, as soon as there is something to start or to end.

        Starts are repeated until the agent holds them. A stop is told once here; the
        heartbeat repeats it, so that an attempt in its grace does not keep polls busy.
        """
        deadline = clock.monotonic() + min(
            poll.wait, self._settings.requests.poll_limit.total_seconds()
        )
        box = self._deliveries.open(node_id, poll)
        with self._waiting.listen(poll.incarnation) as bell, box.claim(poll):
            while box.poll is poll:
                left = deadline - clock.monotonic()
                if box.is_good(self._patience) and (box.starts or left > 0):
                    orders = wire.Orders(start=box.take(), stop=[])
                else:
                    orders = await self._look(node_id, poll, box)
                    left = deadline - clock.monotonic()
                if orders.start or orders.stop or left <= 0:
                    box.note(poll, orders)
                    return orders
                if await bell.wait(min(left, self._patience)) and not box.starts:
                    # It rang for something else than a delivery, perhaps before the box was kept.
                    box.must_look = True
        # The agent has sent another poll since; nobody waits for the answer to this one.
        return wire.Orders(start=[], stop=[])

    async def _look(self, node_id: int, poll: wire.Poll, box: Box) -> wire.Orders:
        began = box.begin_look()
        async with self._database.connection(Lane.NODE) as conn:
            should_hold = await self._holdings.read(conn, node_id, poll.incarnation, poll.held)
            if should_hold is None:
                self._deliveries.drop(poll.incarnation, box)
                raise Fenced("This incarnation has been ended; join again.")
            held = set(poll.held)
            missing = [
                row.id
                for row in should_hold
                if wire.AttemptRef(row.id, row.attempt, row.token) not in held
            ]
            starts = (
                await nodes.read_assignments(conn, poll.incarnation, missing) if missing else []
            )
            stop = await _certain_stops(conn, poll.held, should_hold)
        self._deliveries.keep(poll.incarnation, box)
        box.end_look(began, (row.token for row in should_hold))
        return wire.Orders(
            start=[self._assignment(start) for start in starts],
            stop=[one for one in stop if one.ref not in box.told],
        )

    def _assignment(self, start: nodes.Start) -> wire.Assignment:
        return wire.Assignment(
            ref=wire.AttemptRef(start.id, start.attempt, start.token),
            payload=start.payload,
            resources=start.needs,
            execution_cap=start.execution_cap.total_seconds(),
            grace=self._settings.execution.grace.total_seconds(),
            idempotency_key=start.idempotency_key,
            log_limit=start.payload.log_bytes(self._settings.execution.log_limit),
            result_limit=start.payload.result_bytes(self._settings.execution.result_limit),
            inputs_limit=self._inputs_limit(start) if start.has_inputs else None,
            tenant=start.tenant_id,
            cpu_quota=start.payload.cpu_quota,
        )

    def _inputs_limit(self, start: nodes.Start) -> int:
        """Return how many bytes of others' results an attempt is given: no more than its disk."""
        limit = self._settings.execution.inputs_limit
        return min(limit, start.needs.disk_mb * 2**20) if start.needs.disk_mb else limit

    async def stops_for(self, node_id: int, beat: wire.Heartbeat) -> list[wire.Stop]:
        """Return everything that the agent is to end, told before or not."""
        async with self._database.connection(Lane.NODE) as conn:
            should_hold = await self._holdings.read(conn, node_id, beat.incarnation, beat.held)
            return await _certain_stops(conn, beat.held, should_hold or [])


async def _certain_stops(
    conn: Connection, held: Sequence[wire.AttemptRef], should_hold: Sequence[nodes.HeldAttempt]
) -> list[wire.Stop]:
    """Return what an agent is to end, and make sure first of what it is told it has lost.

    It forgets that. Had the row only gone in a commit that a failover undoes, the attempt
    would be on nobody's mind and run for ever.
    """
    found = stops(held, should_hold)
    if any(stop.why == "lost" for stop in found):
        await confirm(conn)
    return found


def stops(
    held: Sequence[wire.AttemptRef], should_hold: Sequence[nodes.HeldAttempt]
) -> list[wire.Stop]:
    """Return what an agent that holds `held` is to end, given what it should hold.

    A cancelled attempt is named even if the agent does not hold it: it answers with a report
    that nothing of it runs, which is what lets the task end.
    """
    rows = {wire.AttemptRef(row.id, row.attempt, row.token): row for row in should_hold}
    lost = [wire.Stop(ref=ref, why="lost") for ref in held if ref not in rows]
    cancelled = [
        wire.Stop(ref=ref, why="cancelled") for ref, row in rows.items() if row.is_cancelled
    ]
    overdue = [
        wire.Stop(ref=ref, why="capped")
        for ref, row in rows.items()
        if row.is_overdue and not row.is_cancelled
    ]
    return lost + cancelled + overdue
