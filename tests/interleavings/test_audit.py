"""The audit raises no false alarm: what it calls impossible is never there, not for a moment.

`DULY_TORTURE=1` looks ten times as often.
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
LATE = timedelta(hours=1)
TAKES_TIME = {DriftKind.ORPHANED, DriftKind.ABOVE_OVERRIDE}
"""What is there for a moment while all goes as it should."""
LOSES_ENDS = """
create function lose() returns trigger language plpgsql as 'begin return null; end';
create trigger lose before insert on ends for each row
    when (new.status = 'cancelled') execute function lose()
"""


async def look(conn: asyncpg.Connection) -> None:
    """Go through everything at once; raises when something cannot be."""
    audit_checks = AuditChecks(SETTINGS, LATE)
    for walk, first in (*audit_checks.live(), *audit_checks.history()):
        piece = await walk(conn, first)
        assert piece.last is None
        impossible = [one for one in piece.findings if one.kind not in TAKES_TIME]
        assert impossible == []


@pytest.mark.parametrize("theme", THEMES)
async def test_nothing_impossible_is_ever_seen(dsn, monkeypatch, theme):
    async with exploring(dsn, monkeypatch) as explorer:
        for seed in range(SEEDS):
            await explorer.run(seed, theme, look)


async def test_what_is_impossible_would_be_seen(dsn, monkeypatch):
    async with exploring(dsn, monkeypatch, LOSES_ENDS) as explorer:
        with pytest.raises(InvariantViolated, match="LOST_TASK"):
            for seed in range(20):
                await explorer.run(seed, "cancels", look)


async def test_repairs_break_no_law_even_if_they_come_too_early(dsn, monkeypatch):
    monkeypatch.setitem(WEIGHTS, "repair", 20)
    monkeypatch.setitem(WEIGHTS, "sweep", 2)
    repairs = 0
    async with exploring(dsn, monkeypatch) as explorer:
        for seed in range(10 * SEEDS):
            for theme in ("joins", "losses"):
                repairs += (await explorer.run(seed, theme)).told.repairs
    assert repairs > 2
