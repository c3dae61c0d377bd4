"""Puts right what the self-audit may put right, one thing at a time.

A repair is made under the leader's term, looks again under the lock whether there still is
something to repair, and leaves an event with the task, in one transaction. Kinds without a
remedy are only reported: whoever looks at them knows more than this program does.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from duly import telemetry
from duly.model.drift import Finding, Kind
from duly.policy.audit import MEANINGS
from duly.server.queue_manager import QueueManager
from duly.store import repairs, servers
from duly.store.database import Connection, Database, Unstorable
from duly.store.leases import Ended
from duly.store.servers import Term

log = logging.getLogger(__name__)
AT_ONCE = 100
"""Repairs in one round, at most: a flood of them is for a person to look at."""
ABOUT_NODES = frozenset({Kind.REMOVED_NODE_ALIVE, Kind.TWO_AGENTS})

Remedy = Callable[[Connection, Finding], Awaitable[bool]]


class Repairer:
    """Knows the remedy of each kind of drift that has one."""

    def __init__(self, database: Database, queue_manager: QueueManager, late: timedelta) -> None:
        self._database = database
        self._queue_manager = queue_manager
        self._late = late
        self._taken_back: list[Ended] = []
        self._remedies: Mapping[Kind, Remedy] = {
            Kind.ORPHANED: self._take_back,
            Kind.LIVE_AND_ENDED: lambda conn, one: repairs.remove_live(conn, one.about),
            Kind.MISMATCHED: lambda conn, one: repairs.copy_from_task(conn, one.about),
            Kind.NOT_RELEASED: lambda conn, one: repairs.release(conn, one.about, late=self._late),
            Kind.TOKEN_AHEAD: lambda conn, one: repairs.advance_tokens(conn, one.about),
            Kind.MINTED_AHEAD: lambda conn, one: repairs.raise_mark(conn, one.about),
            Kind.MISCOUNTED: lambda conn, one: repairs.recount(conn, one.about),
            Kind.REMOVED_NODE_ALIVE: lambda conn, one: repairs.end_agents(conn, one.about),
            Kind.TWO_AGENTS: lambda conn, one: repairs.end_agents(conn, one.about),
            Kind.LOST_TASK: lambda conn, one: repairs.restore(conn, one.about),
            Kind.LETTER_WITHOUT_END: lambda conn, one: repairs.remove_letter(conn, one.about),
        }

    async def repair(self, term: Term, drift: Sequence[Finding]) -> list[Finding]:
        """Repair what can be repaired; return that. Raises NotLeading when the term is over."""
        repaired = []
        for finding in [one for one in drift if one.kind in self._remedies][:AT_ONCE]:
            try:
                done = await self._repair(term, finding)
            except Unstorable as error:
                # Two things are wrong with it at once. It stays reported; others go on.
                log.warning("cannot repair %s of %s: %s", finding.kind, finding.about, error)
                continue
            if done:
                log.warning(
                    "repaired %s of %s: %s", finding.kind, finding.about, MEANINGS[finding.kind]
                )
                telemetry.REPAIRS.labels(finding.kind.value).inc()
                repaired.append(finding)
        if repaired:
            self._queue_manager.look_anew()
        return repaired

    async def _repair(self, term: Term, finding: Finding) -> bool:
        self._taken_back.clear()
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            done = await self._remedies[finding.kind](conn, finding)
            if done and finding.kind not in ABOUT_NODES:
                await repairs.note(conn, finding.about, {"drift": finding.kind.value})
        self._queue_manager.wake_ended(self._taken_back)
        return done

    async def _take_back(self, conn: Connection, finding: Finding) -> bool:
        """End an attempt as lost, as the queue manager would have."""
        held = await repairs.lock_orphan(conn, finding.about, int(finding.evidence))
        if held is None:
            return False
        self._taken_back += await self._queue_manager.take_back(conn, [held])
        return True
