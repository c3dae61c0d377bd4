"""A node behind a slow link: what it takes to fetch counts against nothing that a task may use."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from duly.server.scheduling.resource_manager import KILL_BACKSTOP
from tests.faults.lab import Lab
from tests.faults.proxy import Proxy

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]
CAP = GRACE = timedelta(seconds=1)
LONG = CAP + GRACE + KILL_BACKSTOP + timedelta(seconds=3)
"""How long the fetch takes: longer than the server leaves an attempt of which it hears nothing."""
RATE = 2**17
BALLAST = int(LONG.total_seconds() * RATE)
RUN = '#!/bin/sh\nsleep 0.5\nwc -c < ballast > "$DULY_RESULT"\n'


@pytest.fixture
def job(folder: Path) -> Path:
    """A folder with a script, and with what takes its time to come."""
    place = folder / "job"
    place.mkdir()
    (place / "run.sh").write_text(RUN)
    (place / "run.sh").chmod(0o755)
    (place / "ballast").write_bytes(os.urandom(BALLAST))
    return place


@pytest.mark.skipif("DULY_TORTURE" not in os.environ, reason="it takes a quarter of a minute")
def test_the_cap_counts_from_the_begin_of_a_task_and_not_of_its_fetch(lab: Lab, job: Path) -> None:
    lab.start_server()
    proxy = Proxy(lab.port)
    proxy.slow("/v1/gateway/artifact", RATE)
    lab.start_agent(url=proxy.url)
    client = lab.client()
    task = client.submit(
        command=["./run.sh"], artifact=client.upload(job), execution_cap=CAP, max_attempts=1
    )["id"]
    ended = client.wait(task, timeout=120)
    assert (ended["status"], client.get_result(task)) == ("done", BALLAST)
    (attempt,) = client.list_attempts(task)
    leased, started = (datetime.fromisoformat(attempt[at]) for at in ("leased_at", "started_at"))
    assert started - leased > LONG
    proxy.close()
