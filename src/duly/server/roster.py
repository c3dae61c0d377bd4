"""What runs where: counted in every round, or remembered while counting takes too long.

An ended attempt stays in the index of what runs until no snapshot is old enough to see it, and
a count walks over all of them. When that takes longer than it should, the leader goes by what
it remembers, and makes sure of it in every round. Only the leader gives out leases, and their
tokens only go up: what has come since the last round has a higher token than all that was seen,
and what has gone is found by asking for each attempt that is known, by its id.

A lease whose answer was lost may take effect late, with a token from before. As long as that
is possible after an error, and else about once a second, everything is read.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
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


class Roster:
    """The attempts that run, by task; good for one term."""

    def __init__(self, lateness: timedelta, quick: timedelta = QUICK) -> None:
        """Remember nothing; `lateness` is how late a statement may yet take effect."""
        self._lateness = lateness.total_seconds()
        self._quick = quick.total_seconds()
        self._is_slow = False
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
            self._pace.hurry()
        try:
            yield
        except BaseException:
            self._trusted_from = clock.monotonic() + self._lateness
            raise

    async def read(self, conn: Connection) -> Stock:
        """Return what there is to give, and what of it has been given."""
        if self._is_slow and clock.monotonic() >= self._trusted_from:
            held = await stock.read_stock(conn, running=False)
            incarnations = [offer.incarnation_id for offer in held.offers]
            in_use = await self._remembered(conn, incarnations)
            return msgspec.structs.replace(held, in_use=in_use)
        began_at = clock.monotonic()
        held = await stock.read_stock(conn)
        self._judge(began_at, sum(one.times for one in held.in_use))
        self._pace.hurry()
        return held

    def _judge(self, began_at: float, attempts: int) -> None:
        """Decide by what a look at everything took whether to do without the next ones."""
        self._is_slow = clock.monotonic() - began_at > self._quick + EACH * attempts

    async def _remembered(self, conn: Connection, incarnations: Sequence[int]) -> list[InUse]:
        if self._pace.is_due or not self._incarnations.issuperset(incarnations):
            began_at = clock.monotonic()
            with self._pace.step():
                begun, _ = await leases.read_changes(conn, incarnations, NOTHING_SEEN, {})
            self._judge(began_at, len(begun))
            self._running = {}
            self._incarnations = set(incarnations)
            self._seen = NOTHING_SEEN if begun else self._seen
        else:
            known = {task: one.token for task, (one, _) in self._running.items()}
            begun, gone = await leases.read_changes(conn, incarnations, self._seen, known)
            for task in gone:
                del self._running[task]
        at = clock.monotonic()
        for one in begun:
            self._running[one.id] = one, at + one.remaining.total_seconds()
            self._seen = max(self._seen, one.token)
        return self._counted(at)

    def _counted(self, at: float) -> list[InUse]:
        ends: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        for one, ends_at in self._running.values():
            ends[one.incarnation_id, one.shape_id].append(ends_at)
        return [
            InUse(incarnation, shape, len(known), min(known) - at)
            for (incarnation, shape), known in ends.items()
        ]
