"""Recounts yesterday's usage from the attempts, and compares it with the usage ledger.

Recorded attempts never change, and the ledger knows their range of numbers, so a recount gives
the same result however long it takes. It runs in small pages, and once per state of a day.
"""

from datetime import date

from duly.model.drift import DriftKind, Finding
from duly.model.usage import NO_AMOUNTS, Amounts
from duly.policy.audit import books_disagree
from duly.policy.price import TARIFF
from duly.store.accounts import usage
from duly.store.accounts.usage import LedgerDay, LedgerKey
from duly.store.database import Connection
from duly.store.maintenance.audit import AuditBatch, Cursor

ATTEMPTS_PER_PAGE = 5000
"""Attempts, by their numbers, that are recounted in one page."""


class VerifiedDay:
    """The last day whose ledger was found correct, and up to which attempt number."""

    def __init__(self) -> None:
        self._verified: tuple[date, int] | None = None

    def covers(self, ledger: LedgerDay) -> bool:
        """Return True if nothing was recorded for the day since it was verified."""
        return self._verified == (ledger.day, ledger.up_to)

    def mark(self, ledger: LedgerDay) -> None:
        """Remember that the ledger of a day is correct."""
        self._verified = ledger.day, ledger.up_to


class UsageRecount:
    """One recount of the attempts of one day."""

    def __init__(self, verified_day: VerifiedDay) -> None:
        self._verified_day = verified_day
        self._ledger: LedgerDay | None = None
        self._counted: dict[LedgerKey, Amounts] = {}

    async def check(self, conn: Connection, cursor: Cursor) -> AuditBatch:
        """Count the next page; with the last one, return the tenants whose ledger is wrong."""
        if self._ledger is None:
            self._ledger = await usage.read_yesterday(conn)
            if self._ledger is None or self._verified_day.covers(self._ledger):
                return AuditBatch([], 0, None)
        ledger = self._ledger
        start = cursor[0] if cursor else ledger.above
        up_to = min(start + ATTEMPTS_PER_PAGE, ledger.up_to)
        counted = await usage.recount(conn, TARIFF, day=ledger.day, above=start, up_to=up_to)
        for key, amounts in counted.items():
            self._counted[key] = self._counted.get(key, NO_AMOUNTS).plus(amounts)
        attempts = sum(amounts.attempts for amounts in counted.values())
        if up_to < ledger.up_to:
            return AuditBatch([], attempts, (up_to,))
        return AuditBatch(await self._compare(conn, ledger), attempts, None)

    async def _compare(self, conn: Connection, ledger: LedgerDay) -> list[Finding]:
        first_retained_id = await usage.first_retained_id(conn)
        wrong = {}
        for key in sorted(ledger.lines.keys() | self._counted.keys(), key=str):
            line = ledger.lines.get(key)
            recorded = NO_AMOUNTS if line is None else line.amounts
            all_there = line is None or line.first_task_id >= first_retained_id
            if books_disagree(recorded, self._counted.get(key, NO_AMOUNTS), all_there=all_there):
                wrong[key.tenant_id] = Finding(
                    DriftKind.USAGE_MISMATCH, key.tenant_id, str(ledger.day)
                )
        if not wrong:
            self._verified_day.mark(ledger)
        return list(wrong.values())
