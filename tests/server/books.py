"""What was used, as the books say and as a recount of every attempt says, which must be equal."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import asyncpg
import msgspec

from duly.model.usage import Amounts
from duly.policy.price import TARIFF, cost
from duly.store.accounts import usage

KEYS = ("day", "tenant", "user", "tier", "urgency")
EVER = (date(2000, 1, 1), date(2100, 1, 1))
MICROSECOND = timedelta(microseconds=1)
FREE = ("lost", "preempted", "expired")
ROWS = """
    select a.*, t.tenant_id, n.name as tenant, u.name as "user", s.needs, s.queue,
           coalesce(f.tier, t.tier) as tier,
           coalesce(f.delay_tolerance, t.delay_tolerance) as delay_tolerance
      from attempts a
      join tasks t on t.id = a.task_id
      join tenants n on n.id = t.tenant_id
      left join users u on u.id = t.user_id
      left join former_specs f on f.task_id = a.task_id and f.attempt = (
            select min(attempt) from former_specs
             where task_id = a.task_id and attempt >= a.attempt
           )
      join shapes s on s.id = coalesce(f.shape_id, t.shape_id)
     where a.entry > 0
"""

Books = dict[tuple[Any, ...], Amounts]


def urgency_of(tolerance: timedelta, queue: str | None) -> str:
    """Say again, in other words than the product's, how urgent a task is."""
    seconds = tolerance.total_seconds()
    if queue == "off_peak" and seconds >= 60:
        return "patient" if seconds < 3600 else "off_peak"
    if seconds < 60 or queue == "urgent":
        return "urgent"
    if seconds < 3600:
        return "ordinary"
    return "patient" if seconds < 43_200 else "off_peak"


async def recount(conn: asyncpg.Connection, by: Iterable[str] = KEYS) -> Books:
    """Add up every attempt, one by one."""
    found: dict[tuple[Any, ...], Amounts] = defaultdict(Amounts)
    for row in await conn.fetch(ROWS):
        place = {
            "day": row["finished_at"].astimezone(UTC).date(),
            "tenant": row["tenant"],
            "user": row["user"],
            "tier": row["tier"],
            "urgency": urgency_of(row["delay_tolerance"], row["queue"]),
        }
        ran = 0
        if row["started_at"] is not None and row["outcome"] not in FREE:
            ran = (row["finished_at"] - row["started_at"]) // MICROSECOND
        needs = msgspec.json.decode(row["needs"])
        one = Amounts(
            tasks=int(row["attempt"] == 1),
            attempts=1,
            cpu_us=round((row["cpu_seconds"] or 0) * 1e6),
            granted_cpu_milli_us=ran * needs.get("cpu_milli", 0),
            granted_memory_mb_us=ran * needs.get("memory_mb", 0),
        )
        key = tuple(place[name] for name in by)
        found[key] = found[key].plus(one)
    return dict(found)


async def told(
    conn: asyncpg.Connection, by: Iterable[str] = KEYS, tenants: list[int] | None = None
) -> dict[tuple[Any, ...], tuple[Amounts, Fraction]]:
    """Return what whoever asks is told: amounts and prices."""
    names = tuple(by)
    since, until = EVER
    used = await usage.read(
        conn,
        TARIFF,
        tenants=await usage.tenant_ids(conn) if tenants is None else tenants,
        since=since,
        until=until,
        by=names,
        limit=10_000,
    )
    found: dict[tuple[Any, ...], tuple[Amounts, Fraction]] = {}
    for one in used:
        key = tuple(getattr(one.dimensions, name) for name in names)
        amounts, price = found.get(key, (Amounts(), Fraction(0)))
        more = cost(one.rates, one.factor, one.amounts)
        found[key] = (amounts.plus(one.amounts), price + more)
    return found


async def amounts_told(conn: asyncpg.Connection, by: Iterable[str] = KEYS) -> Books:
    """Return what whoever asks is told, without prices."""
    return {key: amounts for key, (amounts, _) in (await told(conn, by)).items()}


async def booked(conn: asyncpg.Connection) -> int:
    """Return how many attempts are in the books."""
    return int(await conn.fetchval("select coalesce(sum(attempts), 0) from usage"))


async def unbooked(conn: asyncpg.Connection) -> int:
    """Return how many attempts can be seen that are not in the books."""
    return int(
        await conn.fetchval(
            "select count(*) from attempts where entry > (select booked_to from usage_watermark)"
        )
    )


async def set_prices(
    conn: asyncpg.Connection, plan: str, task: str, cpu_hour: str, gib_hour: str
) -> None:
    """Let a plan cost something."""
    await conn.execute(
        "update plans set price_per_task = $2, price_per_cpu_hour = $3, price_per_gib_hour = $4 "
        "where name = $1",
        plan,
        *(Decimal(price) for price in (task, cpu_hour, gib_hour)),
    )
