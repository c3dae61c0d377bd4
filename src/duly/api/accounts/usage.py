"""The route that reports usage and its cost by day, tenant, user, tier and urgency."""

import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from fractions import Fraction

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.lookups import cross_tenant_connection, tenant_connection
from duly.api.requests.query import Query, parse_since, query_of
from duly.api.requests.whole_lists import page_of
from duly.api.responses import as_json
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.errors import Invalid
from duly.model.tenant import Scope
from duly.model.usage import NO_AMOUNTS, Amounts, UsageDimensions, UsageRecord
from duly.model.wording import either
from duly.policy.price import TARIFF, cost, round_price
from duly.store.accounts import usage
from duly.store.database import Connection

DIMENSIONS = tuple(UsageDimensions.__struct_fields__)
MAX_QUOTED_CHARACTERS = 40
DATE_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
DEFAULT_SPAN = timedelta(days=29)
"""30 days including today."""
MAX_ROWS = 10_000
"""Rows in one response."""
MICROSECONDS_PER_SECOND = 1_000_000


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one group; dimensions that are not grouped by are null."""

    day: date | None
    tenant: str | None
    user: str | None
    tier: str | None
    urgency: str | None
    tasks: int
    attempts: int
    cpu_seconds: float
    """The processor time used."""
    granted_cpu_seconds: float
    """The granted cores times the seconds for which they were held."""
    granted_memory_mb_seconds: float
    price: str


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The usage in a range of days (UTC), both included."""

    since: date
    until: date
    items: list[UsageRow]
    total: UsageRow
    next_cursor: str | None = None


@route(
    "GET",
    "/v1/usage",
    "Report usage and its cost",
    access=Access.READ,
    response_body=UsageReport,
    query=(
        Parameter("since", "The first day (UTC): a date, a time or a duration such as 7d."),
        Parameter("until", "The last day (UTC); today by default."),
        Parameter(
            "by",
            "Dimensions to group by: day, tenant, user, tier, urgency; comma-separated. "
            "With tenant, an administrator who names no tenant gets all of them.",
            repeatable=True,
        ),
        Parameter("limit", "The number of items; all by default.", int, minimum=1, maximum=1000),
        Parameter("cursor", "The next_cursor of an earlier response."),
    ),
    errors=(422,),
)
async def get_usage(request: Request) -> Response:
    """Report the usage of all attempts that have ended, booked or not, and its cost.

    The total is that of all items, whatever `limit` is.
    """
    credential, query = credential_of(request), query_of(request)
    by = _parse_dimensions(query.get_all("by"))
    components, names_no_tenant = components_of(request), query.get("tenant") is None
    all_tenants = "tenant" in by and Scope.ADMIN in credential.scopes and names_no_tenant
    async with (
        cross_tenant_connection(components)
        if all_tenants
        else tenant_connection(components, credential) as conn
    ):
        tenants = await usage.tenant_ids(conn) if all_tenants else [credential.tenant_id]
        first, last = await _parse_period(conn, query)
        used = await usage.read(
            conn, TARIFF, tenants=tenants, since=first, until=last, by=by, limit=MAX_ROWS + 1
        )
    if len(used) > MAX_ROWS:
        raise Invalid(
            "by",
            f"there are more than {MAX_ROWS} rows. Ask for fewer days, or group by less.",
        )
    rows = [_row(group, members) for group, members in _grouped(used).items()]
    page, cursor = page_of(rows, query, _key, default_limit=MAX_ROWS)
    total = _row(UsageDimensions(), used)
    return as_json(
        UsageReport(since=first, until=last, items=list(page), total=total, next_cursor=cursor)
    )


def _key(row: UsageRow) -> str:
    """Return the dimensions of a row, which no other row of a report has."""
    return msgspec.json.encode([row.day, row.tenant, row.user, row.tier, row.urgency]).decode()


def _parse_dimensions(values: Sequence[str]) -> frozenset[str]:
    """Parse the dimensions to group by; days by default."""
    names = [name.strip() for value in values for name in value.split(",")] or ["day"]
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown:
        raise Invalid("by", f"{unknown[0][:40]!r} is unknown. Use {either(DIMENSIONS)}.")
    return frozenset(names)


async def _parse_period(conn: Connection, query: Query) -> tuple[date, date]:
    """Return the first and the last day of the requested period."""
    today = await usage.today(conn)
    last = await _parse_day(conn, query.get("until"), "until") or today
    first = await _parse_day(conn, query.get("since"), "since") or last - DEFAULT_SPAN
    if first > last:
        raise Invalid("until", f"{last} is before since, which is {first}.")
    return first, last


async def _parse_day(conn: Connection, text: str | None, field: str) -> date | None:
    """Parse a date, or return the day of a time."""
    if text is not None and DATE_PATTERN.fullmatch(text.strip()):
        try:
            day = date.fromisoformat(text.strip())
        except ValueError:
            raise Invalid(
                field, f"{text[:MAX_QUOTED_CHARACTERS]!r} is not a day. Write it like 2027-01-31."
            ) from None
        if not 2000 <= day.year <= 2200:
            raise Invalid(field, f"{day} is not between the years 2000 and 2200.")
        return day
    at = await parse_since(conn, text, field)
    return None if at is None else at.date()


def _grouped(rows: Iterable[UsageRecord]) -> dict[UsageDimensions, list[UsageRecord]]:
    """Group the rows by their dimensions; a group may have several prices."""
    groups: dict[UsageDimensions, list[UsageRecord]] = {}
    for row in rows:
        groups.setdefault(row.dimensions, []).append(row)
    return groups


def _row(group: UsageDimensions, members: Iterable[UsageRecord]) -> UsageRow:
    amounts: Amounts = NO_AMOUNTS
    price = Fraction(0)
    for used in members:
        amounts = amounts.plus(used.amounts)
        price += cost(used.rates, used.factor, used.amounts)
    return UsageRow(
        day=group.day,
        tenant=group.tenant,
        user=group.user,
        tier=group.tier,
        urgency=group.urgency,
        tasks=amounts.tasks,
        attempts=amounts.attempts,
        cpu_seconds=amounts.cpu_us / MICROSECONDS_PER_SECOND,
        granted_cpu_seconds=amounts.granted_cpu_milli_us / (1000 * MICROSECONDS_PER_SECOND),
        granted_memory_mb_seconds=amounts.granted_memory_mb_us / MICROSECONDS_PER_SECOND,
        price=str(round_price(price)),
    )


HANDLERS = [get_usage]
