"""Counts what was used yesterday once more, and compares it with the books.

Attempts that are booked never change, and which numbers they have is known: counting them
again gives the same today as it will tomorrow, however long it takes. So it is done in small
pieces, and once for each state of a day.
"""

from datetime import date

from duly.model.drift import Finding, Kind
from duly.model.usage import NONE, Amounts
from duly.policy.audit import is_off
from duly.policy.price import TARIFF
from duly.store import usage
from duly.store.audit import Piece, Place
from duly.store.database import Connection
from duly.store.usage import Key, Page

PIECE = 5000
"""Numbers of attempts that are gone through in one go."""


class Balanced:
    """The last day that was found right, and up to which number."""

    def __init__(self) -> None:
        self._known: tuple[date, int] | None = None

    def covers(self, page: Page) -> bool:
        """Say whether nothing was booked for the day since it was found right."""
        return self._known == (page.day, page.up_to)

    def note(self, page: Page) -> None:
        """Remember that the page is right."""
        self._known = page.day, page.up_to


class Recount:
    """One count of the attempts of one day."""

    def __init__(self, balanced: Balanced) -> None:
        self._balanced = balanced
        self._page: Page | None = None
        self._counted: dict[Key, Amounts] = {}

    async def look(self, conn: Connection, above: Place) -> Piece:
        """Count the next piece; with the last one, say where the books are wrong."""
        if self._page is None:
            self._page = await usage.read_page(conn)
            if self._page is None or self._balanced.covers(self._page):
                return Piece([], 0, None)
        page = self._page
        start = above[0] if above else page.above
        up_to = min(start + PIECE, page.up_to)
        counted = await usage.recount(conn, TARIFF, day=page.day, above=start, up_to=up_to)
        for key, amounts in counted.items():
            self._counted[key] = self._counted.get(key, NONE).plus(amounts)
        looked_at = sum(one.attempts for one in counted.values())
        if up_to < page.up_to:
            return Piece([], looked_at, (up_to,))
        return Piece(await self._compare(conn, page), looked_at, None)

    async def _compare(self, conn: Connection, page: Page) -> list[Finding]:
        first_kept = await usage.first_kept(conn)
        wrong = {}
        for key in sorted(page.lines.keys() | self._counted.keys(), key=str):
            line = page.lines.get(key)
            booked = NONE if line is None else line.amounts
            all_there = line is None or line.first_task_id >= first_kept
            if is_off(booked, self._counted.get(key, NONE), all_there=all_there):
                wrong[key.tenant_id] = Finding(Kind.BOOKS_OFF, key.tenant_id, str(page.day))
        if not wrong:
            self._balanced.note(page)
        return list(wrong.values())
