"""Whoever leads, dies or sleeps: no tenant ever runs more at once than it may."""

import asyncio
import signal

import asyncpg
import pytest

from tests.faults.lab import Lab, until
from tests.torture import database_dump
from tests.torture.evidence import Evidence
from tests.torture.invariants.quota import most_at_once, quota

pytestmark = pytest.mark.faults
ONE_TENANT = 1


def change(lab: Lab, statement: str) -> None:
    """Change something in the database, as an administrator would."""

    async def run() -> None:
        conn = await asyncpg.connect(lab.dsn, server_settings={"search_path": "duly"})
        await conn.execute(statement)
        await conn.close()

    asyncio.run(run())


def test_a_limit_holds_while_leaders_are_killed_and_stopped_and_it_is_raised(lab: Lab) -> None:
    change(lab, "update plans set max_running = 2")
    servers = [lab.start_server(0), lab.start_server(1)]
    assert lab.leader() == ("server-0", 1)
    for name in ("a", "b"):
        lab.start_agent(name, url=lab.urls)
    urls = lab.urls.split(",")
    told: list[str] = []

    def go_on(*which: int) -> None:
        """Submit some more to some servers, and wait until some of it all is done."""
        before = len(database_dump.read(lab.dsn).ends)
        for number in range(24):
            task = lab.client(urls[which[number % len(which)]]).submit(
                source=lab.ledger.script("sleep 0.2"),
                resources={"cpu": 0.1},
                concurrency={"key": f"key {number % 4}", "limit": 1},
            )
            told.append(task["id"])
        until(lambda: len(database_dump.read(lab.dsn).ends) >= before + 8, "some tasks to be done")

    go_on(0, 1)
    servers[0].kill()
    until(lambda: lab.leader(urls[1]) == ("server-1", 2), "another leader")
    go_on(1)
    servers[0] = lab.start_server(0)
    change(lab, "update plans set max_running = 3")
    go_on(0, 1)
    servers[1].send(signal.SIGSTOP)
    until(lambda: (lab.leader() or ("", 0))[1] == 3, "a third leader")
    go_on(0)
    servers[1].send(signal.SIGCONT)
    go_on(0, 1)

    for task in told:
        assert lab.client().wait(task, timeout=60)["status"] == "done"
    evidence = Evidence(books=database_dump.read(lab.dsn))
    assert quota(evidence) == []
    assert most_at_once(evidence, ONE_TENANT) == 3
    assert lab.violations(told) == []
