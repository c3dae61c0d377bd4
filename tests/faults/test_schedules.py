"""Leaders are killed again and again while schedules fire: each fire time has one task.

`DULY_TORTURE=1` takes two minutes with 200 schedules; otherwise it is some seconds with 20.
"""

import asyncio
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import asyncpg
import httpx
import pytest

from tests.faults.lab import Lab, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
LONG = bool(os.environ.get("DULY_TORTURE"))
SCHEDULES = 200 if LONG else 20
KILLS = range(10, 120, 10) if LONG else range(2, 6, 3)
"""When a leader is killed, in seconds after the first fire time."""
SECONDS = 120 if LONG else 7
AROUND = 0.04
"""Seconds around a fire time within which a leader dies: it reads, claims or commits just then."""
HAND_OVER = 30.0


def rows_of(lab: Lab, query: str) -> list[Any]:
    async def fetch() -> list[Any]:
        conn = await asyncpg.connect(lab.dsn, server_settings={"search_path": "duly"})
        try:
            return list(await conn.fetch(query))
        finally:
            await conn.close()

    return asyncio.run(fetch())


def create(lab: Lab, first: datetime) -> None:
    """Make schedules that fire every second, from `first` on; their tasks tell them apart."""
    with httpx.Client(base_url=lab.url, headers={"Authorization": f"Bearer {lab.key}"}) as client:
        for number in range(SCHEDULES):
            asked = {
                "every": "1s",
                "start_at": first.isoformat(),
                "end_at": (first + timedelta(seconds=SECONDS)).isoformat(),
                "misfire": "all",
                "overlap": "allow",
                "task": {"name": f"of {number}", "command": ["true"]},
            }
            client.post("/v1/schedules", json=asked).raise_for_status()


def term_of(lab: Lab, which: int) -> int:
    """Return the term of whoever leads, as one of the servers tells; 0 when nobody does."""
    return (lab.leader(lab.urls.split(",")[which]) or ("", 0))[1]


def test_each_fire_time_has_one_task_however_often_the_leader_is_killed(lab: Lab) -> None:
    servers = [lab.start_server(0), lab.start_server(1)]
    dice = Random(7)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4 if LONG else 2)
    create(lab, first)

    for number, second in enumerate(KILLS):
        # They take turns: the other one leads before this one is back.
        leader, other = number % 2, 1 - number % 2
        moment = first + timedelta(seconds=second + dice.uniform(-AROUND, AROUND))
        until(lambda at=moment: datetime.now(UTC) >= at, "its last moment", SECONDS)
        servers[leader].kill()
        until(lambda o=other, n=number: term_of(lab, o) > n + 1, "another leader", HAND_OVER)
        servers[leader] = lab.start_server(leader)

    rest = "select 1 from schedules where next_run_at is not null"
    until(lambda: not rows_of(lab, rest), "the last fire time", SECONDS + 60)
    times = [first + timedelta(seconds=second) for second in range(SECONDS + 1)]
    every = Counter((f"of {number}", at) for number in range(SCHEDULES) for at in times)
    tasks = rows_of(lab, "select id, name, run_at from tasks")
    assert Counter((row["name"], row["run_at"]) for row in tasks) == every
    claimed = rows_of(lab, "select task_id, fire_at, reason from occurrences")
    assert {(row["task_id"], row["fire_at"], row["reason"]) for row in claimed} == {
        (row["id"], row["run_at"], None) for row in tasks
    }
