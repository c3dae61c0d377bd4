"""Whoever leads, dies or sleeps: no tenant ever runs more at once than it may."""

import asyncio
import signal

import asyncpg
import pytest

from tests.faults.lab import Lab, until
from tests.torture import books
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
    clients = [lab.client(url) for url in urls]
    told = [
        clients[number % 2].submit(
            source=lab.ledger.script("sleep 0.2"),
            resources={"cpu": 0.1},
            concurrency={"key": f"key {number % 4}", "limit": 1},
        )["id"]
        for number in range(60)
    ]

    def done() -> int:
        return len(books.read(lab.dsn).ends)

    until(lambda: done() >= 10, "some tasks to be done")
    servers[0].kill()
    until(lambda: lab.leader(urls[1]) == ("server-1", 2), "another leader")
    reached = done()
    until(lambda: done() >= reached + 5, "some more to be done")

    servers[0] = lab.start_server(0)
    change(lab, "update plans set max_running = 3")
    reached = done()
    until(lambda: done() >= reached + 5, "some more to be done")
    servers[1].send(signal.SIGSTOP)
    until(lambda: (lab.leader() or ("", 0))[1] == 3, "a third leader")
    servers[1].send(signal.SIGCONT)

    for task in told:
        assert clients[0].wait(task, timeout=60)["status"] == "done"
    evidence = Evidence(books=books.read(lab.dsn))
    assert quota(evidence) == []
    assert most_at_once(evidence, ONE_TENANT) == 3
    assert lab.violations(told) == []
