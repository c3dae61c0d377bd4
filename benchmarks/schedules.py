"""Measures schedules: many that are due in the same second, and the delay of single ones.

The schedules are created by a few requests and copied inside PostgreSQL. Their rules are of every
kind and in several time zones, but all of them fire in the same second: the thundering herd at the
full hour, which is when schedulers are late.
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
from benchmarks.load import TRUE_TASK, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.waiting import until
from duly.bench.figure import Figure, at_most, percentile

PART = "schedules"
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")
LEAD_TIME = timedelta(seconds=4)
"""How long before their fire time schedules are created; copying them takes a part of it."""
NOT_DUE_FOR = timedelta(days=3)
EVERY_SECOND_SCHEDULES = 20
"""Schedules that fire every second, evenly spread, on an otherwise idle system."""
COPY_SCHEDULES = """
with first as (select min(id) as id from duly.schedules),
     given as (
        select s, row_number() over (order by s.id) as number
          from duly.schedules s
         where s.next_run_at = '{fire_at}'
     )
insert into duly.schedules
select (jsonb_populate_record(s, jsonb_build_object('id', first.id - number * {times} + g))).*
  from first, given, generate_series(1, {times} - 1) g
"""
DUE = "select count(*) from duly.schedules where next_run_at = $1"
NONE_DUE = "select not exists (select from duly.schedules where next_run_at <= $1)"
SUBMITTED = """
select count(*)
  from duly.occurrences o
  join duly.tasks t on t.id = o.task_id and t.run_at = o.fire_at
 where o.fire_at = $1
"""
DELAYS = """
select extract(epoch from t.submitted_at - o.fire_at)::float8 * 1000 as submitted,
       extract(epoch from a.started_at - o.fire_at)::float8 * 1000 as started,
       o.fire_at = lag(o.fire_at) over (partition by o.schedule_id order by o.fire_at)
           + interval '1 s' as is_next
  from duly.occurrences o
  join duly.tasks t on t.id = o.task_id
  join duly.attempts a on a.task_id = t.id
"""


def measure(rig: Rig) -> Iterator[Figure]:
    """Let many schedules fire at once, then a few, evenly spread."""
    yield from _same_second(rig)
    yield from _spread(rig)


def rules(fire_at: datetime) -> Iterator[dict[str, Any]]:
    """Yield rules of every kind in every zone, all of which fire at `fire_at`."""
    for name in ZONES:
        wall = fire_at.astimezone(ZoneInfo(name))
        zone = {"timezone": name, "start_at": fire_at.isoformat()}
        yield zone | {"daily": f"{wall:%H:%M:%S}"}
        yield zone | {"weekly": f"{wall:%a}@{wall:%H:%M:%S}".lower()}
        yield zone | {"monthly": f"{wall.day}@{wall:%H:%M:%S}"}
        yield zone | {"cron": f"{wall.second} {wall.minute} {wall.hour} * * *"}
        yield zone | {"every": "24h"}


def _same_second(rig: Rig) -> Iterator[Figure]:
    total, due = rig.sizes.schedules, rig.sizes.schedules_due
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as instance:
        _create_schedules(
            instance, datetime.now(UTC).replace(microsecond=0) + NOT_DUE_FOR, total - due
        )
        cluster.run(dsn, "vacuum analyze duly.schedules", "checkpoint")
        fire_at = datetime.now(UTC).replace(microsecond=0) + LEAD_TIME
        due = _create_schedules(instance, fire_at, due)
        pids = {"server": [instance.process.pid], "PostgreSQL": rig.postgres.pids}
        before = {name: usage.precise_cpu_seconds(processes) for name, processes in pids.items()}
        seconds = asyncio.run(_await_all_fired(dsn, fire_at))
        spent = {
            name: usage.precise_cpu_seconds(processes) - before[name]
            for name, processes in pids.items()
        }
        submitted = cluster.value(dsn, SUBMITTED, fire_at)
        recorded = cluster.value(dsn, "select count(*) from duly.occurrences")
        if not due == submitted == recorded == checks.count(dsn):
            raise checks.CheckFailed(
                f"{due:,} were due: {submitted:,} submitted, {recorded:,} recorded"
            )
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


def _create_schedules(instance: Installation, fire_at: datetime, count: int) -> int:
    """Create about `count` schedules that fire next at `fire_at`; return how many there are."""
    requests = Requests(instance.url, instance.key)
    prepared = [
        requests.post("/v1/schedules", rule | {"task": TRUE_TASK}) for rule in rules(fire_at)
    ]
    send_all(requests, prepared, 1)
    times = max(count // len(prepared), 1)
    cluster.run(instance.dsn, COPY_SCHEDULES.format(times=times, fire_at=fire_at.isoformat()))
    if datetime.now(UTC) >= fire_at:
        raise checks.CheckFailed("the fire time came before the schedules were created")
    created: int = cluster.value(instance.dsn, DUE, fire_at)
    if created != times * len(prepared):
        raise checks.CheckFailed(f"{created:,} schedules are due of {times * len(prepared):,}")
    return created


async def _await_all_fired(dsn: str, fire_at: datetime) -> float:
    """Return the seconds from `fire_at` until no schedule is due, by PostgreSQL's clock."""
    conn = await asyncpg.connect(dsn)
    try:
        none_due = await conn.prepare(NONE_DUE)
        await asyncio.sleep((fire_at - datetime.now(UTC)).total_seconds())
        await until(lambda: none_due.fetchval(fire_at))
        elapsed: timedelta = await conn.fetchval("select clock_timestamp() - $1", fire_at)
        return elapsed.total_seconds()
    finally:
        await conn.close()


def _spread(rig: Rig) -> Iterator[Figure]:
    seconds = rig.sizes.schedules_seconds
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as instance:
        requests = Requests(instance.url, instance.key)
        first = datetime.now(UTC) + timedelta(seconds=2)
        duration = timedelta(seconds=seconds)
        prepared = [
            _every_second(
                requests, first + number * timedelta(seconds=1) / EVERY_SECOND_SCHEDULES, duration
            )
            for number in range(EVERY_SECOND_SCHEDULES)
        ]
        send_all(requests, prepared, 1)
        time.sleep((first - datetime.now(UTC)).total_seconds() + seconds)
        fires = EVERY_SECOND_SCHEDULES * (seconds + 1)
        _wait_until(dsn, lambda: cluster.value(dsn, "select count(*) from duly.ends") >= fires)
        checks.all_done(dsn, fires)
        rows = cluster.rows(dsn, DELAYS)
    if (
        len(rows) != fires
        or sum(row["is_next"] is not True for row in rows) != EVERY_SECOND_SCHEDULES
    ):
        raise checks.CheckFailed(
            f"{len(rows):,} of {fires:,} fire times have a task, or one was skipped"
        )
    for event, bound in (("submitted", 100.0), ("started", None)):
        delays = [row[event] for row in rows]
        for share in (0.5, 0.99):
            yield Figure(
                part=PART,
                name=f"fire time → {event}, while nothing else happens, p{share * 100:.0f}",
                value=percentile(delays, share),
                unit="ms",
                target=at_most(bound) if bound and share == 0.99 else None,
                note=f"of {len(delays):,}",
            )


def _every_second(requests: Requests, start_at: datetime, duration: timedelta) -> bytes:
    body = {
        "every": "1s",
        "start_at": start_at.isoformat(),
        "end_at": (start_at + duration).isoformat(),
        "overlap": "allow",
        "task": TRUE_TASK,
    }
    return requests.post("/v1/schedules", body)


def _wait_until(dsn: str, condition: Callable[[], bool]) -> None:
    async def poll() -> bool:
        return await asyncio.to_thread(condition)

    asyncio.run(until(poll, 0.2))
