"""Usage: what was used by whom, on which days, and what it costs."""

import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from fractions import Fraction

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.query import Query, query_of, since
from duly.api.reading import overseeing, reading
from duly.api.responses import as_json
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.errors import Invalid
from duly.model.tenant import Scope
from duly.model.usage import NONE, Amounts, Place, Used
from duly.policy.price import TARIFF, cost, told
from duly.store import usage
from duly.store.database import Connection

KEYS = tuple(Place.__struct_fields__)
LONGEST_DAY = 40
DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
SPAN = timedelta(days=29)
"""How far back an answer goes that nobody asked to go further: 30 days, with today."""
MOST = 10_000
"""Rows of one answer."""
SECOND = 1_000_000


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was used in one place; what is not told apart is null."""

    day: date | None
    tenant: str | None
    user: str | None
    tier: str | None
    urgency: str | None
    tasks: int
    attempts: int
    cpu_seconds: float
    """Time that processors really worked."""
    granted_cpu_seconds: float
    """Cores that were granted, times the seconds that they were held."""
    granted_memory_mb_seconds: float
    price: str


class UsageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was used from one day to another, both included (UTC)."""

    since: date
    until: date
    items: list[UsageRow]
    total: UsageRow
    next_cursor: str | None = None


@route(
    "GET",
    "/v1/usage",
    "Tell what was used, and what it costs",
    access=Access.READ,
    gives=UsageAnswer,
    query=(
        Parameter("since", "The first day (UTC): a date, a time or a duration such as 7d."),
        Parameter("until", "The last day (UTC), today unless told."),
        Parameter(
            "by",
            "What to tell apart: day, tenant, user, tier, urgency; several with commas. "
            "With tenant, an administrator who names none is told of all.",
            several=True,
        ),
    ),
    errors=(422,),
)
async def get_usage(request: Request) -> Response:
    """Add up what has ended so far, booked or not."""
    credential, query = credential_of(request), query_of(request)
    by = _by(query.several("by"))
    parts, is_alone = parts_of(request), query.one("tenant") is None
    of_all = "tenant" in by and Scope.ADMIN in credential.scopes and is_alone
    async with overseeing(parts) if of_all else reading(parts, credential) as conn:
        tenants = await usage.tenant_ids(conn) if of_all else [credential.tenant_id]
        first, last = await _days(conn, query)
        found = await usage.read(
            conn, TARIFF, tenants=tenants, since=first, until=last, by=by, limit=MOST + 1
        )
    if len(found) > MOST:
        raise Invalid(
            "by", f"That is more than {MOST} rows; ask for fewer days or tell less apart."
        )
    rows = [_row(place, used) for place, used in _grouped(found).items()]
    return as_json(UsageAnswer(since=first, until=last, items=rows, total=_row(Place(), found)))


def _by(values: Sequence[str]) -> frozenset[str]:
    """Read what to tell apart; days, if nothing is said."""
    names = [name.strip() for value in values for name in value.split(",")] or ["day"]
    unknown = [name for name in names if name not in KEYS]
    if unknown:
        raise Invalid("by", f"by is one of {', '.join(KEYS)}, not {unknown[0][:40]!r}.")
    return frozenset(names)


async def _days(conn: Connection, query: Query) -> tuple[date, date]:
    """Return the first and the last day that are asked for."""
    today = await usage.today(conn)
    last = await _day(conn, query.one("until"), "until") or today
    first = await _day(conn, query.one("since"), "since") or last - SPAN
    if first > last:
        raise Invalid("until", f"until ({last}) is before since ({first}).")
    return first, last


async def _day(conn: Connection, text: str | None, field: str) -> date | None:
    """Read a date, or the day of a time."""
    if text is not None and DAY.fullmatch(text.strip()):
        try:
            day = date.fromisoformat(text.strip())
        except ValueError:
            raise Invalid(field, f"{field} is not a day: {text[:LONGEST_DAY]!r}.") from None
        if not 2000 <= day.year <= 2200:
            raise Invalid(field, f"{field} must lie between the years 2000 and 2200.")
        return day
    at = await since(conn, text, field)
    return None if at is None else at.date()


def _grouped(found: Iterable[Used]) -> dict[Place, list[Used]]:
    """Return by place what was used there, at however many prices."""
    places: dict[Place, list[Used]] = {}
    for one in found:
        places.setdefault(one.place, []).append(one)
    return places


def _row(place: Place, found: Iterable[Used]) -> UsageRow:
    amounts: Amounts = NONE
    price = Fraction(0)
    for one in found:
        amounts = amounts.plus(one.amounts)
        price += cost(one.rates, one.factor, one.amounts)
    return UsageRow(
        day=place.day,
        tenant=place.tenant,
        user=place.user,
        tier=place.tier,
        urgency=place.urgency,
        tasks=amounts.tasks,
        attempts=amounts.attempts,
        cpu_seconds=amounts.cpu_us / SECOND,
        granted_cpu_seconds=amounts.granted_cpu_milli_us / (1000 * SECOND),
        granted_memory_mb_seconds=amounts.granted_memory_mb_us / SECOND,
        price=str(told(price)),
    )


HANDLERS = [get_usage]
