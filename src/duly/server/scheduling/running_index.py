"""What runs where: counted in every round, or remembered while counting takes too long.

An ended attempt stays in the index of what runs until no snapshot is old enough to see it, and
a count walks over all of them. When that takes longer than it should, again and again, the
leader goes by what it remembers, and makes sure of it in every round. Only the leader gives out
leases, and their tokens only go up: what has come since the last round has a higher token than
all that was seen, and what has gone is found by asking for each attempt that is known, by its id.

A lease whose answer was lost may take effect late, with a token from before. As long as that
is possible after an error, and else about once a second, everything is read.

What runs on an agent that has ended, or takes no more, is its tenant's until it has been taken
back: those agents are asked about, too, until nothing runs there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from duly import clock
from duly.server.pace import Pace
from duly.store import leases, stock
from duly.store.database import Connection
from duly.store.leases import Running
from duly.store.servers import Term
from duly.store.stock import InUse, Stock

NOTHING_SEEN = 0
"""Below every token."""
WHOLE = timedelta(seconds=1)
"""How often everything is read."""
QUICK = timedelta(milliseconds=5)
EACH = 2e-6
"""Seconds: a count is quick if it takes no longer than this, and so much for each attempt."""
PATIENCE = 3
"""How many slow ones in a row tell that there is much to walk over: one tells that others had the
processor. To remember what runs takes longer than a quick count."""


class Roster:
    """The attempts that run, by task; good for one term."""

    def __init__(
        self, lateness: timedelta, quick: timedelta = QUICK, patience: int = PATIENCE
    ) -> None:
        """Remember nothing; `lateness` is how late a statement may yet take effect."""
        self._lateness = lateness.total_seconds()
        self._quick = quick.total_seconds()
        self._patience = patience
        self._slow = 0
        """How many counts in a row took too long."""
        self._term: Term | None = None
        self._running: dict[int, tuple[Running, float]] = {}
        self._incarnations: set[int] = set()
        self._seen = NOTHING_SEEN
        self._pace = Pace(WHOLE)
        self._trusted_from = float("-inf")

    @contextmanager
    def round(self, term: Term) -> Iterator[None]:
        """Rely on what is remembered of this term; not after a round that failed."""
        if term != self._term:
            self._term = term
            self._slow = 0
        try:
            yield
        except BaseException:
            self._trusted_from = clock.monotonic() + self._lateness
            raise

    async def read(self, conn: Connection, tenants: Collection[int] = ()) -> Stock:
        """Return what there is to give, and what has been given; what `tenants` have, apart."""
        if self._slow >= self._patience and clock.monotonic() >= self._trusted_from:
            held = await stock.read_stock(conn, running=False)
            await self._remember(conn, {offer.incarnation_id for offer in held.offers})
            return msgspec.structs.replace(held, in_use=self._counted(frozenset(tenants)))
        began_at = clock.monotonic()
        held = await stock.read_stock(conn, tenants=tenants)
        self._judge(began_at, sum(one.times for one in held.in_use))
        self._incarnations = {one.incarnation_id for one in held.offers}
        self._incarnations.update(one.incarnation_id for one in held.in_use)
        self._pace.hurry()
        return held

    def _judge(self, began_at: float, attempts: int) -> None:
        """Decide by what a look at everything took whether to do without the next ones."""
        is_slow = clock.monotonic() - began_at > self._quick + EACH * attempts
        self._slow = self._slow + 1 if is_slow else 0

    async def _remember(self, conn: Connection, offering: set[int]) -> None:
        """Learn what has begun and what has gone since the last round."""
        asked = list(offering | self._incarnations)
        if self._pace.is_due or not self._incarnations.issuperset(offering):
            began_at = clock.monotonic()
            with self._pace.step():
                begun, _ = await leases.read_changes(conn, asked, NOTHING_SEEN, {})
            self._judge(began_at, len(begun))
            self._running = {}
            self._seen = NOTHING_SEEN if begun else self._seen
        else:
            known = {task: one.token for task, (one, _) in self._running.items()}
            begun, gone = await leases.read_changes(conn, asked, self._seen, known)
            for task in gone:
                del self._running[task]
        at = clock.monotonic()
        for one in begun:
            self._running[one.id] = one, at + one.remaining.total_seconds()
            self._seen = max(self._seen, one.token)
        self._incarnations = offering | {one.incarnation_id for one, _ in self._running.values()}

    def _counted(self, tenants: Collection[int]) -> list[InUse]:
        at = clock.monotonic()
        ends: defaultdict[tuple[int, int, int | None], list[float]] = defaultdict(list)
        for one, ends_at in self._running.values():
            tenant = one.tenant_id if one.tenant_id in tenants else None
            ends[one.incarnation_id, one.shape_id, tenant].append(ends_at)
        return [
            InUse(incarnation, shape, len(known), min(known) - at, tenant)
            for (incarnation, shape, tenant), known in ends.items()
        ]
