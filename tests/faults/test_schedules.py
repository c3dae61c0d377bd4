"""Leaders are killed again and again while schedules fire: each fire time has one task or graph.

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
GRAPHS = 20 if LONG else 3
"""Schedules of a graph of three tasks, besides."""
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


def create(lab: Lab, first: datetime) -> list[datetime]:
    """Make schedules that fire every second, from `first` on; their tasks tell them apart.

    Return when each of them fires first: later, if it was late to be made.
    """
    begins = []
    with httpx.Client(base_url=lab.url, headers={"Authorization": f"Bearer {lab.key}"}) as client:
        for number in range(SCHEDULES + GRAPHS):
            asked = {
                "every": "1s",
                "start_at": first.isoformat(),
                "end_at": (first + timedelta(seconds=SECONDS)).isoformat(),
                "misfire": "all",
                "overlap": "allow",
                **submitted(number),
            }
            made = client.post("/v1/schedules", json=asked).raise_for_status().json()
            begins.append(datetime.fromisoformat(made["next_run_at"]))
    return begins


def submitted(number: int) -> dict[str, Any]:
    """Return what the schedule of a number submits: the last ones are of graphs."""
    task = {"name": f"of {number}", "command": ["true"]}
    if number < SCHEDULES:
        return {"task": task}
    ends = {"b": {"depends_on": ["a"]}, "c": {"depends_on": ["a", "b"]}}
    return {"graph": {"defaults": task, "tasks": {"a": {}, **ends}}}


def term_of(lab: Lab, which: int) -> int:
    """Return the term of whoever leads, as one of the servers tells; 0 when nobody does."""
    return (lab.leader(lab.urls.split(",")[which]) or ("", 0))[1]


def test_each_fire_time_leads_to_one_thing_however_often_the_leader_is_killed(lab: Lab) -> None:
    servers = [lab.start_server(0), lab.start_server(1)]
    dice = Random(7)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4 if LONG else 2)
    begins = create(lab, first)

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
    every = Counter(
        (f"of {number}", at, ref)
        for number, begin in enumerate(begins)
        for at in times
        if at >= begin
        for ref in ((None,) if number < SCHEDULES else "abc")
    )
    tasks = rows_of(lab, "select id, name, run_at, ref, graph_id from tasks")
    assert Counter((row["name"], row["run_at"], row["ref"]) for row in tasks) == every
    claimed = rows_of(lab, "select task_id, graph_id, fire_at, reason from occurrences")
    assert {
        (row["task_id"], row["graph_id"], row["fire_at"], row["reason"]) for row in claimed
    } == {
        (None if row["graph_id"] else row["id"], row["graph_id"], row["run_at"], None)
        for row in tasks
    }
    edges = rows_of(lab, "select count(*) from edges")
    assert edges[0]["count"] == sum(row["graph_id"] is not None for row in tasks)
