"""Knows what is free, gives it to tasks, and tells the nodes.

A round reads what is free, takes the window from the prioritizer, places it, and
turns the placements into leases in one round trip. What is free is derived from
live leases every time: there is no counter that could leak.

Nodes learn of their attempts by polling. A poll says what the agent holds; the
answer is whatever else the database says it should hold. So nothing needs to be
acknowledged, and a lost answer is simply given again.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from datetime import timedelta

import msgspec

from duly import clock, telemetry, wire
from duly.config import Settings
from duly.errors import Fenced
from duly.model.node import Known, Offer
from duly.model.resources import describe
from duly.model.shape import Shape
from duly.model.task import Reason, Status
from duly.policy import placement, queueing
from duly.policy.explain import missing_labels
from duly.policy.placement import Ask, Placement
from duly.server.bell import Bell
from duly.server.cluster_manager import ClusterManager
from duly.server.deliveries import Box, Deliveries
from duly.server.health import Health
from duly.server.herald import Herald
from duly.server.holdings import Holdings
from duly.server.limit_book import LimitBook
from duly.server.lines import EARLIEST
from duly.server.news import Ids, News
from duly.server.prioritizer import LATER, NEVER, Prioritizer
from duly.server.roster import Roster
from duly.server.service import Service
from duly.store import leases, nodes, servers
from duly.store.database import Connection, Database, QuotasChanged, confirm, now
from duly.store.lanes import Lane
from duly.store.leases import Head, Lease
from duly.store.servers import Term
from duly.store.stock import Marks, Stock

RECHECK = timedelta(seconds=1)
"""How often a waiting poll looks again, in case that nobody told it."""
BACKSTOP = timedelta(seconds=5)
"""How long after cap and grace an agent gets before it is told to kill."""


class ResourceManager(Service):
    """Places tasks on nodes while this server leads, and answers the nodes' polls."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        bell: Bell,
        herald: Herald,
    ) -> None:
        super().__init__(settings.scheduling.interval)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._bell = bell
        self._herald = herald
        self._health = Health()
        self._shapes: dict[int, Shape] = {}
        self._kinds: dict[int, str] = {}
        self._limits = LimitBook()
        self._hopeless_since: dict[int, float] = {}
        self._polls = Bell()
        self._deliveries = Deliveries()
        self._holdings = Holdings()
        self._roster = Roster(settings.database.statement_timeout)

    async def tick(self) -> bool:
        """Place what can be placed; end what no node could ever take."""
        term = self._cluster_manager.term
        if term is None:
            return False
        with self._roster.round(term):
            try:
                return await self._round(term)
            except QuotasChanged:
                # Nothing was leased. What tenants may have is read again, and counted anew.
                self._limits.forget()
                return True

    async def _round(self, term: Term) -> bool:
        async with self._database.connection() as conn:
            shapes = set(await self._prioritizer.shapes(conn))
            if not shapes:
                return False
            tenants = set(self._prioritizer.tenants)
            await self._limits.learn(conn, tenants)
            counted = self._limits.counted(tenants)
            held = await self._roster.read(conn, counted)
            if held.marks.revision != self._limits.revision:
                self._limits.forget()
                return True
            offers = await self._offers(conn, shapes, held)
            rooms = self._rooms(shapes, offers)
            budget = self._limits.budget(held, counted, self._shapes)
            window = await self._prioritizer.window(conn, rooms, budget)
            asks = [self._ask(head) for head in window]
            placements = placement.place(asks, offers)
            leased = await self._lease(conn, term, placements, window, offers, held.marks, counted)
        self._hand_over(leased)
        await self._end_hopeless(term, {one for one in shapes if rooms[one] is NEVER})
        self._limits.note_keys(budget.uncounted)
        if window and not placements:
            return self._prioritizer.pass_over()
        if counted:
            held_back = {ask.task for ask in placement.held_back(asks, offers, placements)}
            self._prioritizer.pass_over_lines(
                (head.tenant_id, head.shape_id)
                for head in window
                if head.id in held_back and head.tenant_id in counted
            )
        has_more = self._prioritizer.has_more and (bool(leased) or not window)
        return has_more or bool(budget.uncounted)

    async def _offers(self, conn: Connection, shapes: set[int], held: Stock) -> list[Offer]:
        """Return what each node has free, and learn the shapes that are spoken of."""
        unknown = (shapes | held.shapes) - self._shapes.keys()
        if unknown:
            learned = await leases.read_shapes(conn, sorted(unknown))
            await confirm(conn)
            self._shapes.update(learned)
            self._kinds.update({id_: one.kind for id_, one in learned.items()})
        penalties = await self._health.penalties(conn)
        return [
            msgspec.structs.replace(offer, penalty=penalties[offer.node_id])
            if offer.node_id in penalties
            else offer
            for offer in held.free(self._shapes)
        ]

    def _rooms(self, shapes: Iterable[int], offers: Sequence[Offer]) -> dict[int, int]:
        """Return for how many of each shape there is room, told once for those that ask the same.

        A shape that was noted during this tick is not known yet; its turn is the next one.
        """
        # More than two windows is as good as any number.
        most = 2 * self._settings.scheduling.window
        found: dict[str, int] = {}
        rooms = {}
        for shape in shapes:
            if (known := self._shapes.get(shape)) is None:
                rooms[shape] = NEVER
                continue
            kind = self._kinds[shape]
            if kind not in found:
                found[kind] = _room(known, offers, most)
            rooms[shape] = found[kind]
        return rooms

    def _ask(self, head: Head) -> Ask:
        return Ask(
            head.id,
            head.shape_id,
            self._shapes[head.shape_id],
            head.avoid_node_id,
            head.execution_cap,
            queueing.presses(head),
        )

    async def _lease(
        self,
        conn: Connection,
        term: Term,
        placements: Sequence[Placement],
        window: Sequence[Head],
        offers: Sequence[Offer],
        marks: Marks,
        counted: Set[int],
    ) -> list[Lease]:
        revisions = {offer.incarnation_id: offer.revision for offer in offers}
        shapes = {head.id: head.shape_id for head in window}
        chosen = {one.incarnation for one in placements}
        placed = {one.task for one in placements}
        counts = any(head.tenant_id in counted for head in window if head.id in placed)
        return await leases.lease(
            conn,
            term,
            [
                (one.task, one.incarnation, revisions[one.incarnation], shapes[one.task])
                for one in placements
            ],
            revision=marks.revision,
            given=marks.given if counts else None,
            backstop=self._settings.execution.grace + BACKSTOP,
            told=self._deliveries.awaited(chosen, self._patience),
        )

    def _hand_over(self, leased: Sequence[Lease]) -> None:
        """Let the polls know that wait for what has been leased; it is committed."""
        starts: defaultdict[int, list[wire.Assignment]] = defaultdict(list)
        for one in leased:
            if one.told is not None:
                needs = self._shapes[one.told.shape_id].needs
                starts[one.incarnation_id].append(self._assignment(one.start(needs)))
        self._deliveries.put(starts)
        telemetry.ATTEMPTS_LEASED.inc(len(leased))
        incarnations = {one.incarnation_id for one in leased}
        self._deliveries.doubt(incarnations - starts.keys())
        # A node that waits here waits nowhere else; one that does not may wait at any server.
        elsewhere = self._polls.ring(incarnations)
        self._herald.tell(News(incarnations=frozenset(elsewhere)))

    async def _end_hopeless(self, term: Term, shapes: set[int]) -> None:
        """End tasks that no node could ever fit, once nodes have had time to join.

        Only the `shapes` are asked for that no node which is there now could ever take.
        """
        known = shapes & self._shapes.keys()
        if not known:
            self._hopeless_since = {}
            return
        async with self._database.connection() as conn:
            nodes = await leases.read_known(conn)
        hopeless = {
            shape
            for shape in known
            if nodes and not placement.could_ever_fit(self._shapes[shape], nodes)
        }
        since = clock.monotonic()
        self._hopeless_since = {shape: self._hopeless_since.get(shape, since) for shape in hopeless}
        grace = self._settings.scheduling.unplaceable_after
        for shape, first_seen in self._hopeless_since.items():
            if since - first_seen >= grace.total_seconds():
                await self._fail(term, shape, nodes, grace)

    async def _fail(self, term: Term, shape: int, nodes: Sequence[Known], grace: timedelta) -> None:
        reason = _hopeless_reason(self._shapes[shape], nodes)
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            ready_before = await now(conn) - grace
            ids = await leases.lock_unplaceable(
                conn,
                shape,
                self._prioritizer.tenants_with(shape),
                ready_before=ready_before,
                limit=1000,
            )
            ended = await leases.end_unstarted(conn, ids, Status.FAILED, reason)
        self._bell.ring(ended)
        self._herald.tell(News(tasks=frozenset(ended)))

    def hear(self, told: News) -> None:
        """Take in what another server told: work for the leader, orders for nodes here."""
        if told.work and self._cluster_manager.term is not None:
            if told.pairs is None:
                self._prioritizer.recount()
            else:
                self._prioritizer.note((pair, EARLIEST) for pair in told.pairs)
            self.nudge()
        self.nudge_polls(told.incarnations)

    def nudge_polls(self, incarnations: Ids) -> None:
        """Let waiting polls of these incarnations look again now."""
        self._deliveries.doubt(incarnations)
        if incarnations is None:
            self._polls.ring_all()
        else:
            self._polls.ring(incarnations)

    @property
    def _patience(self) -> float:
        """Return for how many seconds a poll is without a look."""
        return self._polls.patience(RECHECK.total_seconds())

    async def orders(self, node_id: int, poll: wire.Poll) -> wire.Orders:
        """Answer a poll, as soon as there is something to start or to end.

        Starts are repeated until the agent holds them. A stop is told once here; the
        heartbeat repeats it, so that an attempt in its grace does not keep polls busy.
        """
        deadline = clock.monotonic() + min(
            poll.wait, self._settings.requests.poll_limit.total_seconds()
        )
        box = self._deliveries.open(node_id, poll)
        with self._polls.listen(poll.incarnation) as bell, box.claim(poll):
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
            if not should_hold and not await nodes.is_alive(conn, poll.incarnation, node_id):
                self._deliveries.drop(poll.incarnation, box)
                self._holdings.forget(poll.incarnation)
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
            result_limit=self._settings.execution.result_limit,
        )

    async def stops_for(self, node_id: int, beat: wire.Heartbeat) -> list[wire.Stop]:
        """Return everything that the agent is to end, told before or not."""
        async with self._database.connection(Lane.NODE) as conn:
            should_hold = await self._holdings.read(conn, node_id, beat.incarnation, beat.held)
            return await _certain_stops(conn, beat.held, should_hold)


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


def _room(shape: Shape, offers: Sequence[Offer], most: int) -> int:
    if found := placement.room(shape, offers, most):
        return found
    return LATER if any(placement.could_fit(shape, offer) for offer in offers) else NEVER


def _hopeless_reason(shape: Shape, nodes: Sequence[Known]) -> Reason:
    labelled = [node for node in nodes if not shape.missing(node.labels)]
    if not labelled:
        return missing_labels(shape, [node.labels for node in nodes])
    # The node that comes closest tells best what is missing.
    short = min((node.capacity.shortage(shape.needs) for node in labelled), key=len)
    missing = ", ".join(describe(kind, amount) for kind, amount in short.items())
    return Reason(
        "no_node_can_fit",
        f"No node could ever fit it: the closest of {len(labelled)} is short of {missing}.",
        {"short": short},
    )
