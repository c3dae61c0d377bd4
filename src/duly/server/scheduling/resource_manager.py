"""Knows what is free, and gives it to tasks.

A round reads what is free, takes the window from the prioritizer, places it, and
turns the placements into leases in one round trip. What is free is derived from
live leases every time: there is no counter that could leak. How the nodes learn of it: polls.py.
"""

import asyncio
from collections.abc import Iterable, Sequence, Set
from datetime import timedelta

import msgspec

from duly import alarm, telemetry
from duly.config import Settings
from duly.model.node import Offer
from duly.model.queue import Queue
from duly.model.shape import Shape
from duly.policy import placement
from duly.policy.placement import Ask, Placement
from duly.policy.queueing import Order
from duly.server.cluster_manager import ClusterManager
from duly.server.health import Health
from duly.server.limit_book import LimitBook
from duly.server.lines import EARLIEST, Pair
from duly.server.news import News
from duly.server.polls import Polls
from duly.server.prioritizer import LATER, NEVER, Prioritizer
from duly.server.roster import Roster
from duly.server.service import Service
from duly.server.unplaceable import Unplaceable
from duly.store import leases
from duly.store.database import Connection, Database, QuotasChanged, confirm
from duly.store.leases import Lease
from duly.store.servers import Term
from duly.store.stock import Marks, Stock
from duly.store.waiting import Head

EXPECTED = timedelta(milliseconds=20)
"""How long a round that has nothing else to do waits for what is being stored."""
BACKSTOP = timedelta(seconds=5)
"""How long after cap and grace an agent gets before it is told to kill."""


class ResourceManager(Service):
    """Places tasks on nodes while this server leads."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        polls: Polls,
        unplaceable: Unplaceable,
    ) -> None:
        super().__init__(settings.scheduling.interval)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._polls = polls
        self._unplaceable = unplaceable
        self._health = Health()
        self._shapes: dict[int, Shape] = {}
        self._kinds: dict[int, str] = {}
        self._queues: dict[int, Queue] = {}
        self._limits = LimitBook()
        self._full: Set[int] = frozenset()
        self._roster = Roster(settings.database.statement_timeout)
        self._led: tuple[Term | None, float] | None = None
        """The last round's term, and since when this server led in it without a gap."""
        self._expected: set[int] = set()
        """The tenants for whom something is being stored."""
        self._is_repeated = False
        """Whether the last round could not lease all that it wanted to."""
        self._awaits = False
        """Whether a round is under way that takes in what is offered."""
        self._offered = asyncio.Event()

    def nudge(self) -> None:
        """Look for room now: something has ended, or there are other nodes."""
        self._full = frozenset()
        self._offered.set()
        super().nudge()

    def expect(self, pairs: Set[Pair]) -> None:
        """Prepare for work that is being stored: what is free can be read at the same time."""
        if self._prioritizer.is_empty and not {shape for _, shape in pairs} <= self._full:
            self._expected.update(tenant for tenant, _ in pairs)
            super().nudge()

    def offer(self, shapes: Set[int]) -> None:
        """Look for room for new work, unless the last look found none and nothing has ended since.

        While the fleet is full, submits come by the thousand, and each would ask in vain.
        """
        if shapes <= self._full:
            return
        if self._awaits:
            self._offered.set()
        else:
            super().nudge()

    async def tick(self) -> bool:
        """Place what can be placed; say what no node that is there could ever take."""
        term = self._cluster_manager.term
        if self._led != (led := (term, self._cluster_manager.led_since)):
            # Of what came while another led, or nobody, nothing was heard.
            self._led = led
            self._prioritizer.recount()
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
            expected, self._expected = self._expected, set()
            shapes = set(await self._prioritizer.shapes(conn))
            if not shapes and not expected:
                self._unplaceable.suspect({})
                return False
            tenants = self._prioritizer.tenants
            counted = await self._counted(conn, tenants if shapes else tenants | expected)
            look = self._look if shapes else self._look_ahead
            held, offers = await look(conn, counted)
            if not shapes:
                shapes = set(await self._prioritizer.shapes(conn))
                if not shapes:
                    return False
                if not await self._counted(conn, self._prioritizer.tenants) <= counted:
                    return True
            if held.marks.revision != self._limits.revision:
                self._limits.forget()
                return True
            await self._learn(conn, shapes)
            rooms = self._rooms(shapes, offers)
            self._full = {one for one in self._shapes.keys() & shapes if rooms[one] <= LATER}
            budget = self._limits.budget(held, counted, self._shapes)
            order = self._order(shapes, offers, held)
            window = await self._prioritizer.window(conn, rooms, budget, order)
            asks = [self._ask(head, order) for head in window]
            placements = placement.place(asks, offers)
            leased = await self._lease(conn, term, placements, window, offers, held.marks, counted)
        are_all_leased = len(leased) == len(placements)
        is_repeated, self._is_repeated = self._is_repeated, not are_all_leased
        if are_all_leased:
            self._prioritizer.keep({one.id for one in leased})
        self._polls.hand_over(leased, self._shapes, window)
        telemetry.ATTEMPTS_LEASED.inc(len(leased))
        self._unplaceable.suspect(
            {one: self._shapes[one] for one in self._shapes.keys() & shapes if rooms[one] is NEVER}
        )
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
        if not are_all_leased and (self._prioritizer.has_stored or not is_repeated):
            return True  # What was only remembered, or has just gone, is not what is read next.
        # Once all that there was room for has been leased, another look finds nothing free.
        has_room = len(leased) < sum(room for room in rooms.values() if room > LATER)
        has_more = self._prioritizer.has_more and has_room and (bool(leased) or not window)
        return has_more or bool(budget.uncounted)

    async def _counted(self, conn: Connection, tenants: Set[int]) -> Set[int]:
        """Return those of `tenants` of which it must be known what they have."""
        await self._limits.learn(conn, tenants)
        return self._limits.counted(tenants)

    async def _look_ahead(
        self, conn: Connection, counted: Set[int]
    ) -> tuple[Stock, Sequence[Offer]]:
        """Look at what there is to give while something is being stored, and wait for that.

        Nobody else gives anything away: what was free then still is, and perhaps more.
        """
        self._offered.clear()
        self._awaits = True
        try:
            found = await self._look(conn, counted)
            await alarm.wait(self._offered, EXPECTED.total_seconds())
        finally:
            self._awaits = False
        return found

    async def _look(self, conn: Connection, counted: Set[int]) -> tuple[Stock, Sequence[Offer]]:
        """Return what there is to give, and what each node has free of it."""
        held = await self._roster.read(conn, counted)
        await self._learn(conn, held.shapes)
        penalties = await self._health.penalties(conn)
        return held, [
            msgspec.structs.replace(offer, penalty=penalties[offer.node_id])
            if offer.node_id in penalties
            else offer
            for offer in held.free(self._shapes)
        ]

    async def _learn(self, conn: Connection, shapes: Set[int]) -> None:
        """Learn what shapes stand for, if that is not known yet."""
        unknown = shapes - self._shapes.keys()
        if unknown:
            learned = await leases.read_shapes(conn, sorted(unknown))
            await confirm(conn)
            self._shapes.update(learned)
            self._kinds.update({id_: one.kind for id_, one in learned.items()})
            self._queues.update({id_: one.queue for id_, one in learned.items() if one.queue})

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

    def _order(self, shapes: Set[int], offers: Sequence[Offer], held: Stock) -> Order:
        scheduling = self._settings.scheduling
        return Order(
            {shape: self._queues[shape] for shape in self._queues.keys() & shapes},
            self._shapes,
            offers,
            now=held.now,
            urgent_slack=scheduling.urgent_slack,
            peak_percent=scheduling.peak_percent,
        )

    def _ask(self, head: Head, order: Order) -> Ask:
        return Ask(
            head.id,
            head.shape_id,
            self._shapes[head.shape_id],
            head.avoid_node_id,
            head.execution_cap,
            order.presses(head),
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
            told=self._polls.awaited(chosen),
        )

    def hear(self, told: News) -> None:
        """Take in what another server told: work for the leader."""
        if told.work and self._cluster_manager.term is not None:
            if told.pairs is None:
                self._prioritizer.recount()
            else:
                self._prioritizer.note((pair, EARLIEST) for pair in told.pairs)
            self.nudge()


def _room(shape: Shape, offers: Sequence[Offer], most: int) -> int:
    if found := placement.room(shape, offers, most):
        return found
    return LATER if any(placement.could_fit(shape, offer) for offer in offers) else NEVER
