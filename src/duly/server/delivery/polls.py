"""Answers the long polls of agents with the attempts to start and to stop.

A poll lists the attempts that the agent holds. The response is the difference from the attempts
that the database says it should hold, so nothing needs an acknowledgement: after a lost response
the next poll gets the same difference again.

Decision: docs/adr/0004-level-triggered-delivery.md.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from duly import clock, wire
from duly.config import Settings
from duly.errors import Fenced
from duly.model.shape import Shape
from duly.server.cluster.hints import Hint, Ids
from duly.server.cluster.server_bus import ServerBus
from duly.server.cluster.wakeups import Wakeups
from duly.server.delivery.expected_attempts import ExpectedAttempts
from duly.server.delivery.mailboxes import Mailbox, Mailboxes
from duly.store.attempts.leases import Lease
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database, confirm
from duly.store.fleet import nodes
from duly.store.tasks.subqueues import Head

RECHECK_INTERVAL = timedelta(seconds=1)
"""How often a waiting poll reads the database without a wake-up."""


class Polls:
    """Answers polls and heartbeats with the attempts that a node is to start and to stop."""

    def __init__(self, database: Database, settings: Settings, server_bus: ServerBus) -> None:
        self._database = database
        self._settings = settings
        self._server_bus = server_bus
        self._wakeups = Wakeups()
        self._mailboxes = Mailboxes()
        self._expected_attempts = ExpectedAttempts()

    def with_mailbox(self, incarnations: Iterable[int]) -> set[int]:
        """Return those of `incarnations` whose next poll can be answered from its mailbox."""
        return self._mailboxes.usable(incarnations, self._recheck_seconds)

    def deliver(
        self, leases: Sequence[Lease], shapes: Mapping[int, Shape], window: Iterable[Head]
    ) -> None:
        """Deliver committed leases of tasks of `window` to the polls of their nodes."""
        tenants = {head.id: head.tenant_id for head in window}
        starts: defaultdict[int, list[wire.Assignment]] = defaultdict(list)
        for lease in leases:
            if lease.details is not None:
                needs = shapes[lease.details.shape_id].needs
                start = lease.start(needs, tenants[lease.id])
                starts[lease.incarnation_id].append(self._assignment(start))
        self._mailboxes.put(starts)
        incarnations = {lease.incarnation_id for lease in leases}
        self._mailboxes.invalidate(incarnations - starts.keys())
        # A node that polls here polls nowhere else; any other node may poll any server.
        elsewhere = self._wakeups.wake(incarnations)
        self._server_bus.publish(Hint(incarnations=frozenset(elsewhere)))

    def on_hint(self, hint: Hint) -> None:
        """Nudge the polls of the incarnations in a hint."""
        self.nudge(hint.incarnations)

    def nudge(self, incarnations: Ids) -> None:
        """Make the polls of these incarnations, or of all if None, read the database now."""
        self._mailboxes.invalidate(incarnations)
        if incarnations is None:
            self._wakeups.wake_all()
        else:
            self._wakeups.wake(incarnations)

    def close(self) -> None:
        """Answer all polls now, because the server stops; agents poll another one."""
        self._wakeups.close()

    @property
    def _recheck_seconds(self) -> float:
        """Return for how many seconds a mailbox is used without reading the database."""
        return self._wakeups.recheck_interval(RECHECK_INTERVAL.total_seconds())

    async def answer(self, node_id: int, poll: wire.PollRequest) -> wire.PollResponse:
        """Answer a poll as soon as there is an attempt to start or to stop.

        Starts are repeated until the agent holds them. A poll returns a stop once and heartbeats
        repeat it, so that an attempt in its grace period does not keep polls busy.
        """
        deadline = clock.monotonic() + min(
            poll.wait, self._settings.requests.poll_limit.total_seconds()
        )
        mailbox = self._mailboxes.open(node_id, poll)
        with self._wakeups.listen(poll.incarnation) as listener, mailbox.claim(poll):
            while mailbox.poll is poll:
                remaining = deadline - clock.monotonic()
                if mailbox.is_fresh(self._recheck_seconds) and (mailbox.starts or remaining > 0):
                    orders = wire.PollResponse(start=mailbox.take(), stop=[])
                else:
                    orders = await self._read_orders(node_id, poll, mailbox)
                    remaining = deadline - clock.monotonic()
                is_over = remaining <= 0 or self._wakeups.is_closed
                if orders.start or orders.stop or is_over:
                    mailbox.record_response(poll, orders)
                    return orders
                woken = await listener.wait(min(remaining, self._recheck_seconds))
                if woken and not mailbox.starts:
                    # Woken for something else than a delivery, or before the mailbox was kept.
                    mailbox.is_stale = True
        # The agent has sent a newer poll; it has abandoned this one.
        return wire.PollResponse(start=[], stop=[])

    async def _read_orders(
        self, node_id: int, poll: wire.PollRequest, mailbox: Mailbox
    ) -> wire.PollResponse:
        """Read the database for the attempts that the poll's agent is to start and to stop."""
        began_at = mailbox.begin_read()
        async with self._database.connection(ConnectionClass.NODE) as conn:
            should_hold = await self._expected_attempts.read(
                conn, node_id, poll.incarnation, poll.held
            )
            if should_hold is None:
                self._mailboxes.drop(poll.incarnation, mailbox)
                raise Fenced("This incarnation has been ended; join again.")
            held = set(poll.held)
            missing = [
                row.id
                for row in should_hold
                if wire.AttemptRef(row.id, row.attempt, row.token) not in held and not row.is_marked
            ]
            starts = await nodes.read_starts(conn, poll.incarnation, missing) if missing else []
            stops = await _confirmed_stops(conn, poll.held, should_hold)
        self._mailboxes.keep(poll.incarnation, mailbox)
        mailbox.end_read(began_at, (row.token for row in should_hold))
        return wire.PollResponse(
            start=[self._assignment(start) for start in starts],
            stop=[stop for stop in stops if stop.ref not in mailbox.sent_stops],
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
        """Return how many bytes of inputs an attempt gets: no more than its disk."""
        limit = self._settings.execution.inputs_limit
        return min(limit, start.needs.disk_mb * 2**20) if start.needs.disk_mb else limit

    async def stops_for(self, node_id: int, heartbeat: wire.Heartbeat) -> list[wire.Stop]:
        """Return every attempt that the agent is to stop, whether polls have returned it or not."""
        async with self._database.connection(ConnectionClass.NODE) as conn:
            should_hold = await self._expected_attempts.read(
                conn, node_id, heartbeat.incarnation, heartbeat.held
            )
            return await _confirmed_stops(conn, heartbeat.held, should_hold or [])


async def _confirmed_stops(
    conn: Connection, held: Sequence[wire.AttemptRef], should_hold: Sequence[nodes.ExpectedAttempt]
) -> list[wire.Stop]:
    """Return the attempts to stop, once the loss of those that are lost, and marks, are durable.

    An agent forgets a lost attempt. If its row was removed by a commit that a failover undoes,
    nobody would track the attempt, and it would run for ever. If a mark were undone, the task would
    be found cancelled, which nobody asked for.
    """
    stops = find_stops(held, should_hold)
    if any(stop.why == "lost" or stop.is_settled for stop in stops):
        await confirm(conn)
    return stops


def find_stops(
    held: Sequence[wire.AttemptRef], should_hold: Sequence[nodes.ExpectedAttempt]
) -> list[wire.Stop]:
    """Return the attempts that an agent with `held` is to stop, given what it should hold.

    A cancelled attempt is included even if the agent does not hold it: the agent reports that
    nothing of it runs, and only then can the task end. Likewise a marked one, which occupies the
    node until then.
    """
    rows = {wire.AttemptRef(row.id, row.attempt, row.token): row for row in should_hold}
    lost = [wire.Stop(ref=ref, why="lost") for ref in held if ref not in rows]
    cancelled = [
        wire.Stop(ref=ref, why="cancelled", is_settled=row.is_marked)
        for ref, row in rows.items()
        if row.is_cancelled or row.is_marked
    ]
    overdue = [
        wire.Stop(ref=ref, why="capped")
        for ref, row in rows.items()
        if row.is_overdue and not row.is_cancelled
    ]
    return lost + cancelled + overdue
