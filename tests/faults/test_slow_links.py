"""A node behind a slow link: the time to fetch inputs does not count against the cap of a task."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from duly.server.scheduling.resource_manager import KILL_BACKSTOP
from tests.faults.lab import Lab
from tests.faults.proxy import Proxy

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]
CAP = GRACE = timedelta(seconds=1)
FETCH_DURATION = CAP + GRACE + KILL_BACKSTOP + timedelta(seconds=3)
"""The duration of the fetch: longer than the kill backstop of the server."""
BYTES_PER_SECOND = 2**17
FILE_BYTES = int(FETCH_DURATION.total_seconds() * BYTES_PER_SECOND)
RUN = '#!/bin/sh\nsleep 0.5\nwc -c < ballast > "$DULY_RESULT"\n'


@pytest.fixture
def job(folder: Path) -> Path:
    """A folder with a script and a large file."""
    path = folder / "job"
    path.mkdir()
    (path / "run.sh").write_text(RUN)
    (path / "run.sh").chmod(0o755)
    (path / "ballast").write_bytes(os.urandom(FILE_BYTES))
    return path


@pytest.mark.skipif("DULY_TORTURE" not in os.environ, reason="it takes a quarter of a minute")
def test_the_cap_counts_from_the_start_of_the_process_not_of_the_fetch(lab: Lab, job: Path) -> None:
    lab.start_server()
    proxy = Proxy(lab.port)
    proxy.slow("/v1/gateway/artifact", BYTES_PER_SECOND)
    lab.start_agent(url=proxy.url)
    client = lab.client()
    task = client.submit(
        command=["./run.sh"], artifact=client.upload(job), execution_cap=CAP, max_attempts=1
    )["id"]
    ended = client.wait(task, timeout=120)
    assert (ended["status"], client.get_result(task)) == ("done", FILE_BYTES)
    (attempt,) = client.list_attempts(task)
    leased, started = (datetime.fromisoformat(attempt[at]) for at in ("leased_at", "started_at"))
    assert started - leased > FETCH_DURATION
    proxy.close()
