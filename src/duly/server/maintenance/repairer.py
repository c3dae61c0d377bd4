"""Repairs the kinds of drift that are safe to repair, one finding at a time.

A repair is one transaction: it is fenced by the leader's term, checks again under the row lock
that the drift is still there, and records an event of the task. Kinds without a remedy are only
reported: they need a person's judgement.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from duly import telemetry
from duly.model.drift import DriftKind, Finding
from duly.policy.audit import MEANINGS
from duly.server.lifecycle.queue_manager import QueueManager
from duly.store.attempts.leases import EndedAttempt
from duly.store.database import Connection, Database, Unstorable
from duly.store.fleet import servers
from duly.store.fleet.servers import Term
from duly.store.maintenance import repairs

log = logging.getLogger(__name__)
MAX_REPAIRS_PER_PASS = 100
"""The most repairs in one audit pass: more than that is for a person to examine."""
NODE_KINDS = frozenset({DriftKind.REMOVED_NODE_ALIVE, DriftKind.TWO_AGENTS})

Remedy = Callable[[Connection, Finding], Awaitable[bool]]


class Repairer:
    """Applies the remedy of each kind of drift that has one."""

    def __init__(self, database: Database, queue_manager: QueueManager, late: timedelta) -> None:
        self._database = database
        self._queue_manager = queue_manager
        self._late = late
        self._ended: list[EndedAttempt] = []
        self._remedies: Mapping[DriftKind, Remedy] = {
            DriftKind.ORPHANED: self._end_orphan,
            DriftKind.LIVE_AND_ENDED: lambda conn, finding: repairs.remove_live(
                conn, finding.about
            ),
            DriftKind.MISMATCHED: lambda conn, finding: repairs.copy_from_task(conn, finding.about),
            DriftKind.NOT_RELEASED: lambda conn, finding: repairs.release(
                conn, finding.about, late=self._late
            ),
            DriftKind.TOKEN_AHEAD: lambda conn, finding: repairs.advance_tokens(
                conn, finding.about
            ),
            DriftKind.MINTED_AHEAD: lambda conn, finding: repairs.raise_high_water(
                conn, finding.about
            ),
            DriftKind.MISCOUNTED: lambda conn, finding: repairs.recount(conn, finding.about),
            DriftKind.REMOVED_NODE_ALIVE: lambda conn, finding: repairs.end_agents(
                conn, finding.about
            ),
            DriftKind.TWO_AGENTS: lambda conn, finding: repairs.end_agents(conn, finding.about),
            DriftKind.LOST_TASK: lambda conn, finding: repairs.restore(conn, finding.about),
            DriftKind.LETTER_WITHOUT_END: lambda conn, finding: repairs.remove_dead_letter(
                conn, finding.about
            ),
        }

    async def repair(self, term: Term, drift: Sequence[Finding]) -> list[Finding]:
        """Return the findings that were repaired. Raises NotLeading when the term is over."""
        repaired = []
        repairable = [finding for finding in drift if finding.kind in self._remedies]
        for finding in repairable[:MAX_REPAIRS_PER_PASS]:
            try:
                done = await self._repair(term, finding)
            except Unstorable as error:
                # Something else is wrong with the same row. It stays reported; others continue.
                log.warning("cannot repair %s of %s: %s", finding.kind, finding.about, error)
                continue
            if done:
                log.warning(
                    "repaired %s of %s: %s", finding.kind, finding.about, MEANINGS[finding.kind]
                )
                telemetry.REPAIRS.labels(finding.kind.value).inc()
                repaired.append(finding)
        if repaired:
            self._queue_manager.recheck()
        return repaired

    async def _repair(self, term: Term, finding: Finding) -> bool:
        self._ended.clear()
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            done = await self._remedies[finding.kind](conn, finding)
            if done and finding.kind not in NODE_KINDS:
                await repairs.record_repair(conn, finding.about, {"drift": finding.kind.value})
        self._queue_manager.notify_ended(self._ended)
        return done

    async def _end_orphan(self, conn: Connection, finding: Finding) -> bool:
        """End an attempt as lost, as the queue manager would have."""
        held = await repairs.lock_orphan(conn, finding.about, int(finding.evidence))
        if held is None:
            return False
        self._ended += await self._queue_manager.end_orphans(conn, [held])
        return True
