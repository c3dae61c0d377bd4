"""The audit raises no false alarms: what it reports as drift never exists, not even briefly.

`DULY_TORTURE=1` runs ten times as many seeds.
"""

import os
from datetime import timedelta

import asyncpg
import pytest

from duly.model.drift import DriftKind
from duly.server.maintenance.audit_checks import AuditChecks
from tests.interleavings.explorer import InvariantViolated, exploring
from tests.interleavings.participants import SETTINGS
from tests.interleavings.workload import THEMES, WEIGHTS

SEEDS = 10 if "DULY_TORTURE" in os.environ else 1
AUDIT_LATE_AFTER = timedelta(hours=1)
TRANSIENT = {DriftKind.ORPHANED, DriftKind.ABOVE_OVERRIDE}
"""Findings that exist briefly in normal operation."""
LOSES_ENDS = """
create function lose() returns trigger language plpgsql as 'begin return null; end';
create trigger lose before insert on ends for each row
    when (new.status = 'cancelled') execute function lose()
"""


async def audit(conn: asyncpg.Connection) -> None:
    """Run all checks of the audit; raises AssertionError for a finding that is not transient."""
    audit_checks = AuditChecks(SETTINGS, AUDIT_LATE_AFTER)
    for walk, first in (*audit_checks.live(), *audit_checks.history()):
        piece = await walk(conn, first)
        assert piece.last is None
        unexpected = [finding for finding in piece.findings if finding.kind not in TRANSIENT]
        assert unexpected == []


@pytest.mark.parametrize("theme", THEMES)
async def test_the_audit_finds_nothing_at_any_point_of_a_run(dsn, monkeypatch, theme):
    async with exploring(dsn, monkeypatch) as explorer:
        for seed in range(SEEDS):
            await explorer.run(seed, theme, audit)


async def test_the_audit_finds_a_lost_task(dsn, monkeypatch):
    async with exploring(dsn, monkeypatch, LOSES_ENDS) as explorer:
        with pytest.raises(InvariantViolated, match="LOST_TASK"):
            for seed in range(20):
                await explorer.run(seed, "cancels", audit)


async def test_premature_repairs_violate_no_invariant(dsn, monkeypatch):
    monkeypatch.setitem(WEIGHTS, "repair", 20)
    monkeypatch.setitem(WEIGHTS, "sweep", 2)
    repairs = 0
    async with exploring(dsn, monkeypatch) as explorer:
        for seed in range(10 * SEEDS):
            for theme in ("joins", "losses"):
                repairs += (await explorer.run(seed, theme)).acknowledged.repairs
    assert repairs > 2
