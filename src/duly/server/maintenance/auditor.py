"""Holds what the database says against first principles, while this server leads.

Everything else here keeps the state right as it changes; this looks at all of it again and
again, a bounded piece at a time, for what should not be there: stuck states are what remains
after all else. What has been wrong in every round for a while is drift. It is reported, and
repaired where that is safe.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby

from duly import clock
from duly.config import Settings
from duly.model.drift import Finding, Kind, Scope, Seen
from duly.policy.audit import MEANINGS, MOST, Key, Suspicion, judge
from duly.server.cluster_manager import ClusterManager
from duly.server.inspections import Inspections, Look
from duly.server.pace import SHARE
from duly.server.queue_manager import QueueManager
from duly.server.repairer import Repairer
from duly.server.service import Service
from duly.store import audit, servers
from duly.store.audit import Piece, Place
from duly.store.database import Database
from duly.store.servers import Term

log = logging.getLogger(__name__)
PACE = timedelta(seconds=1)
"""The pause between two pieces."""
EXAMPLES = 5


class Round:
    """How far a round through one scope has come, what it has seen, what is suspected."""

    def __init__(
        self, scope: Scope, walks: Callable[[], list[tuple[Look, Place]]], interval: timedelta
    ) -> None:
        self.scope = scope
        self.suspicions: dict[Key, Suspicion] = {}
        self.seen: dict[Key, Suspicion] = {}
        self.looked_at = 0
        self.next_at = float("-inf")
        self.said: set[Key] = set()
        self._began_at = 0.0
        self._walks = walks
        self._interval = interval.total_seconds()
        self._left: list[tuple[Look, Place]] = []
        self._counts: Counter[Kind] = Counter()

    def current(self) -> tuple[Look, Place]:
        """Return what is to be looked at next; begins a round if none has begun."""
        if not self._left:
            self._left = self._walks()
            self.seen, self.looked_at = {}, 0
            self._counts.clear()
            self._began_at = clock.monotonic()
        return self._left[0]

    def take_in(self, piece: Piece, *, took: float) -> bool:
        """Remember what a piece has shown, and go on to the next; True at the end of the round.

        A piece that takes long, because much lies between its rows that has gone, is followed
        by a long pause.
        """
        at = clock.monotonic()
        self.looked_at += piece.looked_at
        for finding in piece.findings:
            one = Suspicion(finding, since=at, seen_at=at)
            if one.key not in self.seen and self._counts[finding.kind] < MOST:
                self._counts[finding.kind] += 1
                self.seen[one.key] = one
        look, _ = self._left.pop(0)
        if piece.last is not None:
            self._left.insert(0, (look, piece.last))
        is_over = not self._left
        pause = self._interval if is_over else PACE.total_seconds()
        self.next_at = at + max(pause, SHARE * took)
        return is_over

    @property
    def took(self) -> timedelta:
        """Return how long this round has taken so far."""
        return timedelta(seconds=clock.monotonic() - self._began_at)


class Auditor(Service):
    """Goes through what lives, and more slowly through what is remembered."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cluster_manager: ClusterManager,
        queue_manager: QueueManager,
    ) -> None:
        super().__init__(PACE)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        # An agent that was cut off needs as long to know that it is.
        self._after = max(settings.audit.after, 2 * settings.leases.ttl)
        self._inspections = Inspections(settings, self._after)
        self._repairer = Repairer(database, queue_manager, self._after)
        self._term: Term | None = None
        self._rounds: list[Round] = []

    def pause(self) -> timedelta:
        """Wait until a round has a piece to look at; look for a term about once a second."""
        if not self._rounds:
            return max(PACE, self._settings.leases.term_renewal)
        wait = min(one.next_at for one in self._rounds) - clock.monotonic()
        return timedelta(seconds=max(PACE.total_seconds() / 2, wait))

    async def tick(self) -> bool:
        """Look at one piece of every scope that is due; judge those that are through."""
        term = self._cluster_manager.term
        if term != self._term:
            # What was suspected before says nothing about what happened meanwhile.
            self._term = term
            self._rounds = [] if term is None else self._begin()
        if term is None:
            return False
        for one in self._rounds:
            if clock.monotonic() >= one.next_at:
                await self._step(term, one)
        return False

    def _begin(self) -> list[Round]:
        interval = self._settings.audit.interval
        history = self._settings.audit.history_interval
        return [
            Round(Scope.LIVE, self._inspections.live, interval),
            Round(Scope.HISTORY, self._inspections.history, history),
        ]

    async def _step(self, term: Term, one: Round) -> None:
        look, above = one.current()
        async with self._database.connection() as conn:
            began_at = clock.monotonic()
            piece = await look(conn, above)
            took = clock.monotonic() - began_at
        if one.take_in(piece, took=took):
            await self._close(term, one)

    async def _close(self, term: Term, one: Round) -> None:
        judgement = judge(one.suspicions, one.seen.values(), after=self._after)
        one.suspicions = judgement.suspicions
        _say(one, judgement.drift)
        repaired = await self._repairer.repair(term, judgement.drift)
        for finding in repaired:
            one.suspicions.pop((finding.kind, finding.about), None)
        left = [finding for finding in judgement.drift if finding not in repaired]
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            await audit.publish(
                conn,
                one.scope,
                took=one.took,
                looked_at=one.looked_at,
                drift=_by_kind(left),
                repaired=len(repaired),
            )


def _by_kind(findings: Sequence[Finding]) -> dict[Kind, Seen]:
    """Count findings, and keep a few of each kind."""
    ordered = sorted(findings, key=lambda one: (one.kind, one.about))
    found = {}
    for kind, group in groupby(ordered, key=lambda one: one.kind):
        about = [one.about for one in group]
        found[kind] = Seen(len(about), about[:EXAMPLES])
    return found


def _say(one: Round, drift: Sequence[Finding]) -> None:
    """Log what is new, once for each kind; what stays is not said again."""
    keys = {(finding.kind, finding.about) for finding in drift}
    new = [finding for finding in drift if (finding.kind, finding.about) not in one.said]
    for kind, seen in _by_kind(new).items():
        log.warning("drift: %s %s, such as %s: %s", seen.count, kind, seen.examples, MEANINGS[kind])
    one.said = keys
