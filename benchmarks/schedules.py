"""Measures schedules: many that are due in the same second, and the delay of single ones.

The schedules are made by a few requests and copied inside PostgreSQL. Their rules are of every
kind and of several zones, but all mean the same second: the first day's work of everybody, which
is when a scheduler is late.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg

from benchmarks import checks, cluster, installation, usage
from benchmarks.installation import Installation
from benchmarks.load import TRUE, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.waiting import until
from duly.bench.figure import Figure, at_most, percentile

PART = "schedules"
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")
AHEAD = timedelta(seconds=4)
"""How long before their moment schedules are made; copying them takes a part of it."""
LATER = timedelta(days=3)
OFTEN = 20
"""Schedules that fire every second, one after the other, while nothing else happens."""
COPIES = """
with first as (select min(id) as id from duly.schedules),
     given as (
        select s, row_number() over (order by s.id) as number
          from duly.schedules s
         where s.next_run_at = '{at}'
     )
insert into duly.schedules
select (jsonb_populate_record(s, jsonb_build_object('id', first.id - number * {times} + g))).*
  from first, given, generate_series(1, {times} - 1) g
"""
DUE = "select count(*) from duly.schedules where next_run_at = $1"
IS_PAST = "select not exists (select from duly.schedules where next_run_at <= $1)"
SUBMITTED = """
select count(*)
  from duly.occurrences o
  join duly.tasks t on t.id = o.task_id and t.run_at = o.fire_at
 where o.fire_at = $1
"""
LATE = """
select extract(epoch from t.submitted_at - o.fire_at)::float8 * 1000 as submitted,
       extract(epoch from a.started_at - o.fire_at)::float8 * 1000 as started,
       o.fire_at = lag(o.fire_at) over (partition by o.schedule_id order by o.fire_at)
           + interval '1 s' as is_next
  from duly.occurrences o
  join duly.tasks t on t.id = o.task_id
  join duly.attempts a on a.task_id = t.id
"""


def measure(rig: Rig) -> Iterator[Figure]:
    """Let many schedules fire at once, then a few one after the other."""
    yield from _at_once(rig)
    yield from _one_by_one(rig)


def rules(at: datetime) -> Iterator[dict[str, Any]]:
    """Yield ways to say a moment, each as somebody in another place would."""
    for name in ZONES:
        wall = at.astimezone(ZoneInfo(name))
        zone = {"timezone": name, "start_at": at.isoformat()}
        yield zone | {"daily": f"{wall:%H:%M:%S}"}
        yield zone | {"weekly": f"{wall:%a}@{wall:%H:%M:%S}".lower()}
        yield zone | {"monthly": f"{wall.day}@{wall:%H:%M:%S}"}
        yield zone | {"cron": f"{wall.second} {wall.minute} {wall.hour} * * *"}
        yield zone | {"every": "24h"}


def _at_once(rig: Rig) -> Iterator[Figure]:
    total, due = rig.sizes.schedules, rig.sizes.schedules_due
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as place:
        _make(place, datetime.now(UTC).replace(microsecond=0) + LATER, total - due)
        cluster.run(dsn, "vacuum analyze duly.schedules", "checkpoint")
        at = datetime.now(UTC).replace(microsecond=0) + AHEAD
        due = _make(place, at, due)
        pids = {"server": [place.process.pid], "PostgreSQL": rig.postgres.pids}
        before = {name: usage.on_cpu(each) for name, each in pids.items()}
        seconds = asyncio.run(_await_past(dsn, at))
        spent = {name: usage.on_cpu(each) - before[name] for name, each in pids.items()}
        submitted = cluster.value(dsn, SUBMITTED, at)
        recorded = cluster.value(dsn, "select count(*) from duly.occurrences")
        if not due == submitted == recorded == checks.count(dsn):
            raise checks.Wrong(f"{due:,} were due: {submitted:,} submitted, {recorded:,} recorded")
    yield Figure(
        part=PART,
        name=f"{due:,} of {total:,} schedules due in one second, until the last is submitted",
        value=seconds,
        unit="s",
        target=at_most(2.0),
        note=f"{len(ZONES)} zones, every kind of rule",
    )
    for name, cpu in spent.items():
        yield Figure(part=PART, name=f"CPU per fire time, {name}", value=cpu / due * 1e6, unit="µs")


def _make(place: Installation, at: datetime, count: int) -> int:
    """Make schedules that fire next at a moment, and return how many there are."""
    requests = Requests(place.url, place.key)
    asked = [requests.post("/v1/schedules", one | {"task": TRUE}) for one in rules(at)]
    send_all(requests, asked, 1)
    times = max(count // len(asked), 1)
    cluster.run(place.dsn, COPIES.format(times=times, at=at.isoformat()))
    if datetime.now(UTC) >= at:
        raise checks.Wrong("the moment came before the schedules were made")
    made: int = cluster.value(place.dsn, DUE, at)
    if made != times * len(asked):
        raise checks.Wrong(f"{made:,} schedules are due of {times * len(asked):,}")
    return made


async def _await_past(dsn: str, at: datetime) -> float:
    """Return how many seconds after a moment nothing was due any more, by PostgreSQL's clock."""
    conn = await asyncpg.connect(dsn)
    try:
        past = await conn.prepare(IS_PAST)
        await asyncio.sleep((at - datetime.now(UTC)).total_seconds())
        await until(lambda: past.fetchval(at))
        took: timedelta = await conn.fetchval("select clock_timestamp() - $1", at)
        return took.total_seconds()
    finally:
        await conn.close()


def _one_by_one(rig: Rig) -> Iterator[Figure]:
    seconds = rig.sizes.schedules_seconds
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        requests = Requests(place.url, place.key)
        first = datetime.now(UTC) + timedelta(seconds=2)
        last = timedelta(seconds=seconds)
        asked = [
            _often(requests, first + one * timedelta(seconds=1) / OFTEN, last)
            for one in range(OFTEN)
        ]
        send_all(requests, asked, 1)
        time.sleep((first - datetime.now(UTC)).total_seconds() + seconds)
        fires = OFTEN * (seconds + 1)
        _await(dsn, lambda: cluster.value(dsn, "select count(*) from duly.ends") >= fires)
        checks.all_done(dsn, fires)
        rows = cluster.rows(dsn, LATE)
    if len(rows) != fires or sum(row["is_next"] is not True for row in rows) != OFTEN:
        raise checks.Wrong(
            f"{len(rows):,} fire times have a task of {fires:,}, or one was left out"
        )
    for what, bound in (("submitted", 100.0), ("started", None)):
        late = [row[what] for row in rows]
        for share in (0.5, 0.99):
            yield Figure(
                part=PART,
                name=f"fire time → {what}, while nothing else happens, p{share * 100:.0f}",
                value=percentile(late, share),
                unit="ms",
                target=at_most(bound) if bound and share == 0.99 else None,
                note=f"of {len(late):,}",
            )


def _often(requests: Requests, start_at: datetime, last: timedelta) -> bytes:
    asked = {
        "every": "1s",
        "start_at": start_at.isoformat(),
        "end_at": (start_at + last).isoformat(),
        "overlap": "allow",
        "task": TRUE,
    }
    return requests.post("/v1/schedules", asked)


def _await(dsn: str, condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return await asyncio.to_thread(condition)

    asyncio.run(until(look, 0.2))
