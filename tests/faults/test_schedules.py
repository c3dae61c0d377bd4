"""Each fire time has one task or graph although leaders are killed while schedules fire.

`DULY_TORTURE=1` takes two minutes with 200 schedules, instead of some seconds with 20.
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
IS_LONG_RUN = bool(os.environ.get("DULY_TORTURE"))
SCHEDULES = 200 if IS_LONG_RUN else 20
KILLS = range(10, 120, 10) if IS_LONG_RUN else range(2, 6, 3)
"""When a leader is killed, in seconds after the first fire time."""
SECONDS = 120 if IS_LONG_RUN else 7
GRAPHS = 20 if IS_LONG_RUN else 3
"""Additional schedules, of a graph of three tasks."""
KILL_JITTER_SECONDS = 0.04
"""Leaders are killed within so many seconds of a fire time, when they read, claim or commit."""
FAILOVER_SECONDS = 30.0


def rows_of(lab: Lab, query: str) -> list[Any]:
    async def fetch() -> list[Any]:
        conn = await asyncpg.connect(lab.dsn, server_settings={"search_path": "duly"})
        try:
            return list(await conn.fetch(query))
        finally:
            await conn.close()

    return asyncio.run(fetch())


def create(lab: Lab, first: datetime) -> list[datetime]:
    """Create schedules that fire every second from `first` on, with distinct task names.

    Return the first fire time of each, which is later if its creation was late.
    """
    first_fire_times = []
    with httpx.Client(base_url=lab.url, headers={"Authorization": f"Bearer {lab.key}"}) as client:
        for number in range(SCHEDULES + GRAPHS):
            fields = {
                "every": "1s",
                "start_at": first.isoformat(),
                "end_at": (first + timedelta(seconds=SECONDS)).isoformat(),
                "misfire": "all",
                "overlap": "allow",
                **template(number),
            }
            created = client.post("/v1/schedules", json=fields).raise_for_status().json()
            first_fire_times.append(datetime.fromisoformat(created["next_run_at"]))
    return first_fire_times


def template(number: int) -> dict[str, Any]:
    """Return the template of a schedule; the last ones have graphs."""
    task = {"name": f"of {number}", "command": ["true"]}
    if number < SCHEDULES:
        return {"task": task}
    ends = {"b": {"depends_on": ["a"]}, "c": {"depends_on": ["a", "b"]}}
    return {"graph": {"defaults": task, "tasks": {"a": {}, **ends}}}


def term_of(lab: Lab, index: int) -> int:
    """Return the current term, as reported by one of the servers; 0 without a leader."""
    return (lab.leader(lab.urls.split(",")[index]) or ("", 0))[1]


def test_each_fire_time_has_one_task_or_graph_however_often_the_leader_is_killed(lab: Lab) -> None:
    servers = [lab.start_server(0), lab.start_server(1)]
    rng = Random(7)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4 if IS_LONG_RUN else 2)
    first_fire_times = create(lab, first)

    for number, second in enumerate(KILLS):
        # The servers alternate: the other one leads before this one is back.
        leader, other = number % 2, 1 - number % 2
        kill_at = first + timedelta(
            seconds=second + rng.uniform(-KILL_JITTER_SECONDS, KILL_JITTER_SECONDS)
        )
        until(lambda at=kill_at: datetime.now(UTC) >= at, "the time of the kill", SECONDS)
        servers[leader].kill()
        until(lambda o=other, n=number: term_of(lab, o) > n + 1, "another leader", FAILOVER_SECONDS)
        servers[leader] = lab.start_server(leader)

    remaining = "select 1 from schedules where next_run_at is not null"
    until(lambda: not rows_of(lab, remaining), "the last fire time", SECONDS + 60)
    times = [first + timedelta(seconds=second) for second in range(SECONDS + 1)]
    expected = Counter(
        (f"of {number}", at, ref)
        for number, first_fire_time in enumerate(first_fire_times)
        for at in times
        if at >= first_fire_time
        for ref in ((None,) if number < SCHEDULES else "abc")
    )
    tasks = rows_of(lab, "select id, name, run_at, ref, graph_id from tasks")
    assert Counter((row["name"], row["run_at"], row["ref"]) for row in tasks) == expected
    claimed = rows_of(lab, "select task_id, graph_id, fire_at, reason from occurrences")
    assert {
        (row["task_id"], row["graph_id"], row["fire_at"], row["reason"]) for row in claimed
    } == {
        (None if row["graph_id"] else row["id"], row["graph_id"], row["run_at"], None)
        for row in tasks
    }
    edges = rows_of(lab, "select count(*) from edges")
    assert edges[0]["count"] == sum(row["graph_id"] is not None for row in tasks)
