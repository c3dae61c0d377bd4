"""PostgreSQL is down for longer than a lease lasts."""

import asyncio
import itertools
import os
import time
from pathlib import Path

import asyncpg
import pytest

from duly.agent.limits import cgroup_hierarchies
from duly.errors import Unavailable
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests.conftest import as_superuser
from tests.faults.lab import Lab, until
from tests.faults.test_kills import kill_postgres, submit
from tests.server.standby import Standby

pytestmark = pytest.mark.faults
TTL = 2.0
"""As in FAST_SETTINGS of the lab."""
TICKS = """
i=0; while [ $i -lt 60 ]; do date +%s.%N >> {}; sleep 0.1; i=$((i+1)); done
"""


def _can_freeze() -> bool:
    name = f"duly-test-{os.getpid()}"
    try:
        return cgroup_hierarchies.find(name).can_freeze
    finally:
        cgroup_hierarchies.sweep(name)


def test_agents_keep_their_tasks_through_an_outage_longer_than_a_lease(
    folder: Path, own_postgres: EmbeddedPostgres
) -> None:
    if not _can_freeze():
        pytest.skip("without a freezer, attempts are killed when their lease cannot be renewed")
    lab = Lab(folder, own_postgres.start())
    ticks = folder / "ticks"
    ticks.touch()
    ticks.chmod(0o666)
    try:
        lab.start_server()
        lab.start_agent()
        task = submit(lab, TICKS.format(ticks))
        until(lambda: lab.ledger.starts(task), "the task to start")
        kill_postgres(own_postgres)
        killed_at = time.time()
        time.sleep(4 * TTL)  # the outage itself
        # It accepts connections before `start` returns.
        back_at = time.time()
        own_postgres.start()

        ended = lab.client().wait(task, timeout=60)
        assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
        times = [float(line) for line in ticks.read_text().splitlines()]
        # The task was frozen from when its lease may have expired until it was renewed.
        assert not [at for at in times if killed_at + TTL < at < back_at]
        assert len(times) == 60
        longest_gap = max(after - before for before, after in itertools.pairwise(times))
        assert longest_gap > 2 * TTL
        assert lab.violations([task]) == []
    finally:
        lab.close()


def test_a_server_stops_although_its_commits_wait_for_a_lost_standby(
    folder: Path, own_postgres: EmbeddedPostgres
) -> None:
    lab = Lab(folder, own_postgres.start())
    try:
        server = lab.start_server(REQUESTS__TIMEOUT="2s")
        lab.client().submit(command=["true"])
        asyncio.run(_lose_standby(own_postgres.start()))
        with pytest.raises(Unavailable, match="not known whether"):
            lab.client(seconds=0).submit(command=["true"])
        assert server.stop(20) == 0
        assert server.has_logged("could not resign")
    finally:
        lab.close()


async def _lose_standby(dsn: str) -> None:
    local = {"synchronous_commit": "local"}
    conn = await asyncpg.connect(as_superuser(dsn), server_settings=local)
    await Standby(dsn, conn).lose()
    await conn.close()
