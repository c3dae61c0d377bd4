"""Checks the database's state against invariants while this server leads.

All other components keep the state correct as it changes; the auditor reads all of it again and
again, a bounded page at a time, to find violations such as stuck tasks that no other mechanism
catches. A finding that persists in every pass for a while is drift: it is reported, and repaired
where that is safe.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby

from duly import clock
from duly.config import Settings
from duly.model.drift import AuditScope, DriftCount, DriftKind, Finding
from duly.policy.audit import (
    MAX_FINDINGS_PER_KIND,
    MEANINGS,
    FindingKey,
    TrackedFinding,
    confirm_drift,
)
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.duty_cycle import DEFAULT_DUTY_DIVISOR
from duly.server.lifecycle.queue_manager import QueueManager
from duly.server.maintenance.audit_checks import AuditChecks, Check
from duly.server.maintenance.repairer import Repairer
from duly.server.service import Service
from duly.store.database import Database
from duly.store.fleet import servers
from duly.store.fleet.servers import Term
from duly.store.maintenance import audit
from duly.store.maintenance.audit import AuditBatch, Cursor

log = logging.getLogger(__name__)
PAGE_INTERVAL = timedelta(seconds=1)
"""The pause between two pages."""
MAX_EXAMPLES = 5


class AuditPass:
    """The progress of a pass through one scope, its findings so far, and the suspicions."""

    def __init__(
        self,
        scope: AuditScope,
        checks: Callable[[], list[tuple[Check, Cursor]]],
        interval: timedelta,
    ) -> None:
        self.scope = scope
        self.suspicions: dict[FindingKey, TrackedFinding] = {}
        """Findings of earlier passes that may be drift."""
        self.seen: dict[FindingKey, TrackedFinding] = {}
        """Findings of this pass."""
        self.rows_checked = 0
        self.next_at = float("-inf")
        self.logged: set[FindingKey] = set()
        self._began_at = 0.0
        self._checks = checks
        self._interval = interval.total_seconds()
        self._left: list[tuple[Check, Cursor]] = []
        self._counts: Counter[DriftKind] = Counter()

    def current(self) -> tuple[Check, Cursor]:
        """Return the next check and its cursor; begins a pass if none has begun."""
        if not self._left:
            self._left = self._checks()
            self.seen, self.rows_checked = {}, 0
            self._counts.clear()
            self._began_at = clock.monotonic()
        return self._left[0]

    def record(self, page: AuditBatch, *, took: float) -> bool:
        """Record the findings of a page and advance; return True at the end of the pass.

        A page that takes long, because many dead rows lie between its rows, is followed by a
        long pause.
        """
        at = clock.monotonic()
        self.rows_checked += page.looked_at
        for finding in page.findings:
            suspicion = TrackedFinding(finding, since=at, seen_at=at)
            if (
                suspicion.key not in self.seen
                and self._counts[finding.kind] < MAX_FINDINGS_PER_KIND
            ):
                self._counts[finding.kind] += 1
                self.seen[suspicion.key] = suspicion
        check, _ = self._left.pop(0)
        if page.last is not None:
            self._left.insert(0, (check, page.last))
        is_over = not self._left
        pause = self._interval if is_over else PAGE_INTERVAL.total_seconds()
        self.next_at = at + max(pause, DEFAULT_DUTY_DIVISOR * took)
        return is_over

    @property
    def took(self) -> timedelta:
        """Return how long this pass has taken so far."""
        return timedelta(seconds=clock.monotonic() - self._began_at)


class Auditor(Service):
    """Audits live state in frequent passes and history in slower ones."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cluster_manager: ClusterManager,
        queue_manager: QueueManager,
    ) -> None:
        super().__init__(PAGE_INTERVAL)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        # A partitioned agent takes this long to notice that its lease is gone.
        self._after = max(settings.audit.after, 2 * settings.leases.ttl)
        self._audit_checks = AuditChecks(settings, self._after)
        self._repairer = Repairer(database, queue_manager, self._after)
        self._term: Term | None = None
        self._passes: list[AuditPass] = []

    def pause(self) -> timedelta:
        """Wait until a page is due; without a term, check for one about once a second."""
        if not self._passes:
            return max(PAGE_INTERVAL, self._settings.leases.term_renewal)
        wait = min(audit_pass.next_at for audit_pass in self._passes) - clock.monotonic()
        return timedelta(seconds=max(PAGE_INTERVAL.total_seconds() / 2, wait))

    async def tick(self) -> bool:
        """Check one page of every scope that is due; evaluate the passes that are complete."""
        term = self._cluster_manager.term
        if term != self._term:
            # Suspicions from an earlier term say nothing about what happened since.
            self._term = term
            self._passes = [] if term is None else self._begin()
        if term is None:
            return False
        for audit_pass in self._passes:
            if clock.monotonic() >= audit_pass.next_at:
                await self._check_page(term, audit_pass)
        return False

    def _begin(self) -> list[AuditPass]:
        interval = self._settings.audit.interval
        history = self._settings.audit.history_interval
        return [
            AuditPass(AuditScope.LIVE, self._audit_checks.live, interval),
            AuditPass(AuditScope.HISTORY, self._audit_checks.history, history),
        ]

    async def _check_page(self, term: Term, audit_pass: AuditPass) -> None:
        check, cursor = audit_pass.current()
        async with self._database.connection() as conn:
            began_at = clock.monotonic()
            page = await check(conn, cursor)
            took = clock.monotonic() - began_at
        if audit_pass.record(page, took=took):
            await self._complete(term, audit_pass)

    async def _complete(self, term: Term, audit_pass: AuditPass) -> None:
        """Evaluate a complete pass: log new drift, repair what is safe, publish the rest."""
        judgement = confirm_drift(
            audit_pass.suspicions, audit_pass.seen.values(), after=self._after
        )
        audit_pass.suspicions = judgement.tracked
        _log_new(audit_pass, judgement.drift)
        repaired = await self._repairer.repair(term, judgement.drift)
        for finding in repaired:
            audit_pass.suspicions.pop((finding.kind, finding.about), None)
        left = [finding for finding in judgement.drift if finding not in repaired]
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            await audit.publish(
                conn,
                audit_pass.scope,
                took=audit_pass.took,
                looked_at=audit_pass.rows_checked,
                drift=_by_kind(left),
                repaired=len(repaired),
            )


def _by_kind(findings: Sequence[Finding]) -> dict[DriftKind, DriftCount]:
    """Count findings by kind, with a few examples of each."""
    ordered = sorted(findings, key=lambda finding: (finding.kind, finding.about))
    by_kind = {}
    for kind, group in groupby(ordered, key=lambda finding: finding.kind):
        about = [finding.about for finding in group]
        by_kind[kind] = DriftCount(len(about), about[:MAX_EXAMPLES])
    return by_kind


def _log_new(audit_pass: AuditPass, drift: Sequence[Finding]) -> None:
    """Log new drift, one line per kind; known drift is not logged again."""
    keys = {(finding.kind, finding.about) for finding in drift}
    new = [finding for finding in drift if (finding.kind, finding.about) not in audit_pass.logged]
    for kind, seen in _by_kind(new).items():
        log.warning("drift: %s %s, such as %s: %s", seen.count, kind, seen.examples, MEANINGS[kind])
    audit_pass.logged = keys
