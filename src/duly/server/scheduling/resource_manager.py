"""The scheduler: in rounds it reads what is free, places waiting tasks, and leases them to nodes.

A round reads the fleet, takes the window from the prioritizer, places it (`duly.policy.placement`),
and turns the placements into leases in one round trip. What is free is derived from the live leases
in every round: there is no counter that could leak. Nodes learn of their leases from
`duly.server.delivery.polls`.

Decision: docs/adr/0010-scheduling-rounds.md.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from duly import telemetry, timers
from duly.config import Settings
from duly.model.node import Offer
from duly.model.queues.queue import Queue
from duly.model.shape import Shape
from duly.policy import placement
from duly.policy.budget.queue_room import QueueRoom
from duly.policy.fairness.turns import Shares, SubqueueKey, Turn
from duly.policy.placement import Ask
from duly.policy.queueing import Order
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.cluster.hints import Hint
from duly.server.delivery.polls import Polls
from duly.server.delivery.preparations import KILL_BACKSTOP
from duly.server.scheduling import fair_shares
from duly.server.scheduling.downstream_limits import DownstreamLimits
from duly.server.scheduling.fair_shares import FairShares
from duly.server.scheduling.limits_cache import LimitsCache, queue_room
from duly.server.scheduling.node_health import NodeHealth
from duly.server.scheduling.peak_monitor import PeakMonitor
from duly.server.scheduling.round_values import LoadedFleet, RoundDecision
from duly.server.scheduling.running_index import RunningIndex
from duly.server.scheduling.slot_counter import FITS_LATER, FITS_NEVER, SlotCounter
from duly.server.scheduling.subqueues.prioritizer import Prioritizer
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from duly.server.scheduling.unplaceable import Unplaceable
from duly.server.service import Service
from duly.store.attempts import leases
from duly.store.attempts.leases import Lease
from duly.store.database import Connection, Database, QuotasChanged, confirm
from duly.store.fleet.fleet_snapshot import FleetSnapshot
from duly.store.fleet.servers import Term
from duly.store.tasks.subqueues import Head

NO_HEADROOM_UNTIL = datetime.min.replace(tzinfo=UTC)
STORE_WAIT_TIMEOUT = timedelta(milliseconds=20)
"""How long a round without waiting tasks waits for tasks that are being stored."""


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
        self._health = NodeHealth()
        self._shapes: dict[int, Shape] = {}
        self._kinds: dict[int, str] = {}
        self._queues: dict[int, str] = {}
        self._downstreams = DownstreamLimits(settings.scheduling.window, prioritizer)
        self._limits = LimitsCache()
        self._fair_shares = FairShares()
        self._full_shapes: Set[int] = frozenset()
        """The shapes for which the last round found no slot."""
        self._headroom_until = NO_HEADROOM_UNTIL
        """For tasks that must start until then, the last round had headroom besides."""
        self._peak_monitor = PeakMonitor(settings.scheduling)
        self._running_index = RunningIndex(settings.database.statement_timeout)
        self._leadership: tuple[Term | None, float] | None = None
        """The last round's term, and since when this server led in it without a gap."""
        self._expected_tenants: set[int] = set()
        """The tenants whose tasks are being stored."""
        self._was_incomplete = False
        """Whether the last round could not lease all that it had placed."""
        self._is_waiting_for_tasks = False
        """Whether a round is under way that includes tasks which are stored now."""
        self._tasks_stored = asyncio.Event()

    def nudge(self) -> None:
        """Start a round now: an attempt has ended, or the nodes have changed."""
        self._full_shapes = frozenset()
        self._tasks_stored.set()
        super().nudge()

    def pause(self) -> timedelta:
        """Wait until a downstream may be called again, if sooner."""
        wait = self._downstreams.wait
        return self._interval if wait is None else min(self._interval, timedelta(seconds=wait))

    def expect_tasks(self, keys: Set[SubqueueKey]) -> None:
        """Start a round that reads the fleet while tasks for these subqueues are being stored."""
        if self._prioritizer.is_empty and not {shape for _, shape in keys} <= self._full_shapes:
            self._expected_tenants.update(tenant for tenant, _ in keys)
            super().nudge()

    def nudge_for(self, shapes: Set[int], start_by: datetime) -> None:
        """Start a round for new tasks, unless the last one found no slot and nothing ended since.

        While the fleet is full, submits come by the thousand, and a round for each would be in
        vain. None of the tasks has to start before `start_by`.
        """
        if shapes <= self._full_shapes and start_by > self._headroom_until:
            return
        if self._is_waiting_for_tasks:
            self._tasks_stored.set()
        else:
            super().nudge()

    def on_hint(self, hint: Hint) -> None:
        """Start a round if a hint says that there may be work, and this server leads."""
        if hint.work and self._cluster_manager.term is not None:
            if hint.subqueues is None:
                self._prioritizer.request_recount()
            else:
                self._prioritizer.mark_ready((key, UNKNOWN_START_BY) for key in hint.subqueues)
            self.nudge()

    async def tick(self) -> bool:
        """Run one scheduling round if this server leads; return True if another should follow."""
        term = self._cluster_manager.term
        leadership = (term, self._cluster_manager.led_since)
        if self._leadership != leadership:
            # Hints that were sent while another server led, or none did, were not received.
            self._leadership = leadership
            self._prioritizer.request_recount()
            self._downstreams.reset()
        self._downstreams.wait = None
        if term is None:
            return False
        with self._running_index.round(term):
            try:
                return await self._round(term)
            except QuotasChanged:
                # Nothing was leased. The next round reads the limits and counts usage again.
                self._limits.invalidate()
                return True

    async def _round(self, term: Term) -> bool:
        """Load what a round decides by, decide, and lease; return True if another should follow."""
        async with self._database.connection() as conn:
            fleet = await self._load(conn, term)
            if isinstance(fleet, bool):
                return fleet
            decision = await self._decide(conn, fleet)
            leased = await self._lease(conn, term, fleet, decision)
        return self._conclude(fleet, decision, leased)

    async def _load(self, conn: Connection, term: Term) -> LoadedFleet | bool:
        """Read the fleet and the limits; return True or False if the round ends with that."""
        expected, self._expected_tenants = self._expected_tenants, set()
        shapes = set(await self._prioritizer.waiting_shapes(conn))
        await self._peak_monitor.sync(conn, term)
        if not shapes and not expected:
            self._unplaceable.set_suspects({})
            return False
        tenants = self._prioritizer.tenants
        competing = tenants if shapes else tenants | expected
        counted = await self._tenants_to_count(conn, competing)
        read_fleet = self._read_fleet if shapes else self._read_fleet_and_wait
        is_shared = len(competing) > 1 or not shapes.isdisjoint(self._fair_shares.shared_by_users)
        snapshot, offers = await read_fleet(conn, None if is_shared else counted)
        if not shapes:
            shapes = set(await self._prioritizer.waiting_shapes(conn))
            if not shapes:
                return False
            if not await self._tenants_to_count(conn, self._prioritizer.tenants) <= counted:
                return True
        if snapshot.fence.revision != self._limits.revision:
            self._limits.invalidate()
            return True
        await self._load_shapes(conn, shapes)
        if not is_shared and self._are_shared_by_users(shapes):
            return True
        return LoadedFleet(snapshot, offers, shapes, counted, is_shared)

    async def _decide(self, conn: Connection, fleet: LoadedFleet) -> RoundDecision:
        """Decide what starts where; of the waiting tasks, only those are read that may start."""
        snapshot, offers = fleet.snapshot, fleet.offers
        room = queue_room(self._limits.queues, snapshot, offers, self._shapes)
        self._peak_monitor.observe(offers, snapshot.now)
        headroom = self._peak_monitor.headroom
        counter = SlotCounter(
            self._shapes, self._kinds, offers, headroom, window=self._settings.scheduling.window
        )
        fitting = counter.count(fleet.shapes)
        slots = room.bound(fitting)
        self._remember_full_shapes(fitting, slots, snapshot.now)
        budget = self._limits.budget(snapshot, fleet.counted, self._shapes)
        await self._downstreams.limit(
            conn, snapshot, self._shapes, slots, budget, self._limits.weights
        )
        order = self._order(fleet.shapes, snapshot.now, room)
        shares = self._shares(snapshot, offers, slots, order) if fleet.is_shared else None
        if headroom:
            urgent = self._prioritizer.urgent_shapes(slots, budget, order, shares)
            slots = {**slots, **room.bound(counter.count_with_headroom(urgent))}
        turns = await self._prioritizer.select_window(conn, slots, budget, order, shares)
        asks = self._asks(turns, order, counter.exempt)
        placements = placement.place(asks, offers, headroom)
        window = [turn.task for turn in turns]
        return RoundDecision(window, asks, placements, fitting, slots, budget, room, shares)

    def _conclude(
        self, fleet: LoadedFleet, decision: RoundDecision, leased: Sequence[Lease]
    ) -> bool:
        """Deliver the leases, and learn from the round; return True if another should follow."""
        window, placements, slots = decision.window, decision.placements, decision.slots
        self._count_leased(leased, window, fleet.snapshot.now)
        if decision.shares is not None:
            placed = {head.id: (head.tenant_id, head.shape_id) for head in window}
            fair_shares.settle(decision.shares, len(window), [placed[lease.id] for lease in leased])
        is_complete = len(leased) == len(placements)
        was_incomplete, self._was_incomplete = self._was_incomplete, not is_complete
        if is_complete:
            self._prioritizer.advance_past({lease.id for lease in leased})
        self._polls.deliver(leased, self._shapes, window)
        telemetry.ATTEMPTS_LEASED.inc(len(leased))
        self._report_suspects(decision.fitting)
        self._limits.add_tenants_with_keys(decision.budget.uncounted)
        is_left_over = self._downstreams.settle(
            fleet.snapshot, self._shapes, slots, decision.budget, len(leased)
        )
        if window and not placements:
            return self._prioritizer.skip_selected()
        if fleet.counted:
            self._skip_held_back(decision, fleet)
        if not is_complete and (self._prioritizer.used_just_stored or not was_incomplete):
            # Tasks were cached, or had left since they were read: the next round reads them anew.
            return True
        has_uncounted = bool(decision.budget.uncounted)
        return self._has_more(slots, window, leased) or has_uncounted or is_left_over

    def _has_more(
        self, slots: Mapping[int, int], window: Sequence[Head], leased: Sequence[Lease]
    ) -> bool:
        """Return True if another round may lease more tasks without anything having ended."""
        # Once every slot has been leased, another round finds nothing free.
        has_slots = len(leased) < sum(count for count in slots.values() if count > FITS_LATER)
        return self._prioritizer.has_more and has_slots and (bool(leased) or not window)

    def _report_suspects(self, slots: Mapping[int, int]) -> None:
        self._unplaceable.set_suspects(
            {
                shape: self._shapes[shape]
                for shape, count in slots.items()
                if count == FITS_NEVER and shape in self._shapes
            }
        )

    def _skip_held_back(self, decision: RoundDecision, fleet: LoadedFleet) -> None:
        """Skip subqueues of limited tenants that holds keep from free capacity.

        Their tasks used up the tenant's budget in the window, which others of it may use.
        """
        held_back = {
            ask.task
            for ask in placement.held_back(decision.asks, fleet.offers, decision.placements)
        }
        self._prioritizer.skip_subqueues(
            (head.tenant_id, head.shape_id)
            for head in decision.window
            if head.id in held_back and head.tenant_id in fleet.counted
        )

    async def _tenants_to_count(self, conn: Connection, tenants: Set[int]) -> Set[int]:
        """Return those of `tenants` whose usage must be counted, because limits apply to it."""
        await self._limits.load(conn, tenants)
        return self._limits.tenants_to_count(tenants)

    async def _read_fleet_and_wait(
        self, conn: Connection, counted: Set[int] | None
    ) -> tuple[FleetSnapshot, Sequence[Offer]]:
        """Read the fleet while tasks are being stored, and wait for those.

        Only the leader leases: what was free in the snapshot still is, and perhaps more.
        """
        self._tasks_stored.clear()
        self._is_waiting_for_tasks = True
        try:
            fleet = await self._read_fleet(conn, counted)
            await timers.wait_or_set(self._tasks_stored, STORE_WAIT_TIMEOUT.total_seconds())
        finally:
            self._is_waiting_for_tasks = False
        return fleet

    async def _read_fleet(
        self, conn: Connection, counted: Set[int] | None
    ) -> tuple[FleetSnapshot, Sequence[Offer]]:
        """Return a snapshot of nodes and attempts, and what each node has free.

        Attempts of the tenants in `counted` are listed by tenant; None means of all tenants.
        """
        snapshot = await self._running_index.read(conn, counted)
        await self._load_shapes(conn, snapshot.shapes)
        penalties = await self._health.penalties(conn)
        return snapshot, [
            msgspec.structs.replace(offer, penalty=penalties[offer.node_id])
            if offer.node_id in penalties
            else offer
            for offer in snapshot.free(self._shapes)
        ]

    async def _load_shapes(self, conn: Connection, shapes: Set[int]) -> None:
        """Read the shapes that are not cached yet."""
        missing = shapes - self._shapes.keys()
        if missing:
            loaded = await leases.read_shapes(conn, sorted(missing))
            await confirm(conn)
            self._shapes.update(loaded)
            self._kinds.update({id_: shape.kind for id_, shape in loaded.items()})
            self._queues.update({id_: shape.queue for id_, shape in loaded.items() if shape.queue})
            self._downstreams.using.update(id_ for id_, shape in loaded.items() if shape.uses)

    def _are_shared_by_users(self, shapes: Set[int]) -> bool:
        """Return True if users of the only tenant divide its share: the fleet is read by tenant."""
        self._fair_shares.examine(self._shapes)
        return not shapes.isdisjoint(self._fair_shares.shared_by_users)

    def _remember_full_shapes(
        self, shapes: Iterable[int], slots: Mapping[int, int], now: datetime
    ) -> None:
        """Remember for which shapes there is no slot, until something ends."""
        full = {
            shape
            for shape in shapes
            if slots.get(shape, FITS_LATER) <= FITS_LATER and shape in self._shapes
        }
        self._headroom_until = NO_HEADROOM_UNTIL
        if self._peak_monitor.headroom:
            self._headroom_until = now + self._settings.scheduling.urgent_slack
            full = {shape for shape in full if self._queues.get(shape) != Queue.URGENT}
        self._full_shapes = full

    def _count_leased(self, leased: Sequence[Lease], window: Sequence[Head], now: datetime) -> None:
        if leased:
            ids = {lease.id for lease in leased}
            count = Counter(head.shape_id for head in window if head.id in ids)
            needs = ((self._shapes[shape].needs, times) for shape, times in count.items())
            self._peak_monitor.add_leased(needs, now)

    def _order(self, shapes: Set[int], now: datetime, room: QueueRoom) -> Order:
        return Order(
            {shape: self._queues[shape] for shape in self._queues.keys() & shapes},
            self._shapes,
            now=now,
            urgent_slack=self._settings.scheduling.urgent_slack,
            postponement=self._peak_monitor.postponement(now),
            definitions=self._limits.queues,
            room=room,
        )

    def _shares(
        self,
        snapshot: FleetSnapshot,
        offers: Sequence[Offer],
        slots: Mapping[int, int],
        order: Order,
    ) -> Shares:
        return self._fair_shares.of_round(
            snapshot,
            offers,
            self._shapes,
            self._prioritizer.shapes_by_tenant,
            {shape for shape, count in slots.items() if count >= FITS_LATER},
            self._limits.weights,
            partial(self._prioritizer.is_postponed, order=order) if order.is_peak else None,
        )

    def _asks(self, turns: Sequence[Turn[Head]], order: Order, exempt: Set[int]) -> list[Ask]:
        """Return what to place, in the order of turns.

        A hold is for entitled tasks, or for the tenant lowest in recent use. Headroom is for
        entitled urgent tasks, and the shapes in `exempt`.
        """
        lowest = next((turn.task.tenant_id for turn in turns if not turn.is_entitled), None)
        return [
            Ask(
                head.id,
                head.shape_id,
                self._shapes[head.shape_id],
                head.avoid_node_id,
                head.run_time_bound,
                (is_entitled or head.tenant_id == lowest) and order.qualifies_for_hold(head),
                head.tenant_id,
                (is_entitled and order.is_urgent(head.shape_id, head.start_by))
                or head.shape_id in exempt,
            )
            for head, is_entitled in turns
        ]

    async def _lease(
        self,
        conn: Connection,
        term: Term,
        fleet: LoadedFleet,
        decision: RoundDecision,
    ) -> list[Lease]:
        """Turn placements into leases; those whose task or node has changed are left out."""
        placements, window, fence = decision.placements, decision.window, fleet.snapshot.fence
        revisions = {offer.incarnation_id: offer.revision for offer in fleet.offers}
        shapes = {head.id: head.shape_id for head in window}
        incarnations = {placed.incarnation for placed in placements}
        tasks = {placed.task for placed in placements}
        is_fenced = any(
            head.tenant_id in fleet.counted or decision.room.counts(head.shape_id)
            for head in window
            if head.id in tasks
        )
        calling = self._downstreams.calling(window, tasks)
        # Before the lease: its outcome may remain unknown.
        self._downstreams.spend(calling.values(), self._shapes)
        leased = await leases.lease(
            conn,
            term,
            [
                (
                    placed.task,
                    placed.incarnation,
                    revisions[placed.incarnation],
                    shapes[placed.task],
                )
                for placed in placements
            ],
            revision=fence.revision,
            given=fence.given if is_fenced else None,
            backstop=self._settings.execution.grace + KILL_BACKSTOP,
            with_details=self._polls.with_mailbox(incarnations),
        )
        for lease in leased:
            calling.pop(lease.id, None)
        self._downstreams.refund(calling.values(), self._shapes)
        return leased
