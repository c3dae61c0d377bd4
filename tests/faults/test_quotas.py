"""The concurrency quota of a tenant holds through failovers and stopped leaders."""

import asyncio
import signal

import asyncpg
import pytest

from tests.faults.lab import Lab, until
from tests.torture import database_dump
from tests.torture.evidence import Evidence
from tests.torture.invariants.quota import max_concurrency, quota

pytestmark = pytest.mark.faults
ONE_TENANT = 1


def execute(lab: Lab, statement: str) -> None:
    """Execute a statement in the database."""

    async def run() -> None:
        conn = await asyncpg.connect(lab.dsn, server_settings={"search_path": "duly"})
        await conn.execute(statement)
        await conn.close()

    asyncio.run(run())


def test_the_quota_holds_while_leaders_are_killed_and_stopped_and_while_it_is_raised(
    lab: Lab,
) -> None:
    execute(lab, "update plans set max_running = 2")
    servers = [lab.start_server(0), lab.start_server(1)]
    assert lab.leader() == ("server-0", 1)
    for name in ("a", "b"):
        lab.start_agent(name, url=lab.urls)
    urls = lab.urls.split(",")
    acknowledged: list[str] = []

    def submit_and_wait(*which: int) -> None:
        """Submit tasks to the servers `which`, and wait until eight more are done."""
        before = len(database_dump.read(lab.dsn).ends)
        for number in range(24):
            task = lab.client(urls[which[number % len(which)]]).submit(
                source=lab.ledger.script("sleep 0.2"),
                resources={"cpu": 0.1},
                concurrency={"key": f"key {number % 4}", "limit": 1},
            )
            acknowledged.append(task["id"])
        until(lambda: len(database_dump.read(lab.dsn).ends) >= before + 8, "some tasks to be done")

    submit_and_wait(0, 1)
    servers[0].kill()
    until(lambda: lab.leader(urls[1]) == ("server-1", 2), "another leader")
    submit_and_wait(1)
    servers[0] = lab.start_server(0)
    execute(lab, "update plans set max_running = 3")
    submit_and_wait(0, 1)
    servers[1].send(signal.SIGSTOP)
    until(lambda: (lab.leader() or ("", 0))[1] == 3, "a third leader")
    submit_and_wait(0)
    servers[1].send(signal.SIGCONT)
    submit_and_wait(0, 1)

    for task in acknowledged:
        assert lab.client().wait(task, timeout=60)["status"] == "done"
    evidence = Evidence(dump=database_dump.read(lab.dsn))
    assert quota(evidence) == []
    assert max_concurrency(evidence, ONE_TENANT) == 3
    assert lab.violations(acknowledged) == []
