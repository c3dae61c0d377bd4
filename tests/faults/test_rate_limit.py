"""The rate limit of a tenant is exact although it overloads two servers, one of which is killed.

`make torture` runs it for a minute.
"""

import asyncio
import os
import threading
from datetime import datetime, timedelta

import asyncpg
import pytest

from duly.client.retry import Patience
from duly.client.sync import Client
from duly.clock import monotonic
from duly.errors import LimitExceeded, Unavailable
from duly.model.tenant import Scope
from duly.store.accounts import tenants
from tests.faults.lab import Lab, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
SECONDS = 60 if os.environ.get("DULY_TORTURE") else 6
CLIENTS = 16
PER_SECOND = 5
BURST = 20
PLAN = f"""
insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                   tasks_per_hour, burst)
values ('narrow', '300 s', '1 h', '24 h', 1, {PER_SECOND * 3600}, {BURST})
"""


async def create_tenant(dsn: str) -> str:
    """Create a tenant with a rate limit, and return a key."""
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        await conn.execute(PLAN)
        await conn.execute("insert into tenants (name, plan) values ('narrow', 'narrow')")
        return await tenants.create_key(conn, "narrow", "kim", [Scope.SUBMIT])
    finally:
        await conn.close()


async def read_stored(dsn: str) -> dict[str, datetime]:
    """Return when each task of the tenant was stored."""
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        rows = await conn.fetch(
            """select t.id, t.submitted_at
                 from tasks t join tenants n on n.id = t.tenant_id
                where n.name = 'narrow' order by t.submitted_at, t.id"""
        )
        return {str(row["id"]): row["submitted_at"] for row in rows}
    finally:
        await conn.close()


class LimitedClient(threading.Thread):
    """A client that submits continuously, every fifth time a batch of three."""

    def __init__(self, number: int, urls: str, key: str) -> None:
        super().__init__()
        # Half of the clients start with the other server; none waits for the bucket to refill.
        order = urls.split(",")[:: -1 if number % 2 else 1]
        patience = Patience(total=timedelta(seconds=0.8), max_delay=timedelta(seconds=0.2))
        self._client = Client(",".join(order), key, patience=patience)
        self._number = number
        self.stopped = threading.Event()
        self.acknowledged: list[str] = []
        self.refused = 0
        self.unknown = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        number = 0
        try:
            with self._client:
                while not self.stopped.is_set():
                    number += 1
                    self._submit(number)
        except BaseException as error:
            self.error = error

    def _submit(self, number: int) -> None:
        key = f"{self._number}-{number}"
        task = {"command": ["true"], "run_at": "2100-01-01T00:00:00Z"}
        count = 3 if number % 5 == 0 else 1
        try:
            if count > 1:
                self.acknowledged += self._client.submit_many([task] * count, idempotency_key=key)
            else:
                self.acknowledged.append(self._client.submit(**task, idempotency_key=key)["id"])
        except LimitExceeded:
            self.refused += 1
        except Unavailable:
            self.unknown += count


def excess(stored: list[datetime]) -> float:
    """Return by how much the fullest window exceeds burst and rate; at most 0 if none does."""
    worst, lowest = -float(BURST), float("inf")
    for index, at in enumerate(stored):
        ahead = index - PER_SECOND * (at - stored[0]).total_seconds()
        lowest = min(lowest, ahead)
        worst = max(worst, ahead - lowest + 1 - BURST)
    return worst


def test_the_fullest_window_is_found() -> None:
    begin = datetime(2026, 1, 1)
    full = [begin] * BURST
    assert excess(full) == 0
    assert excess([*full, begin]) == 1
    later = [begin + timedelta(seconds=(number + 1) / PER_SECOND) for number in range(30)]
    assert excess([*full, *later]) == pytest.approx(0)
    assert excess([begin, *(at + timedelta(seconds=99) for at in [*full, begin])]) == 1


def await_progress(clients: list[LimitedClient], *, more: int) -> None:
    """Wait for half of the time, and until `more` tasks were admitted and `more` refused."""

    def counts() -> tuple[int, int]:
        return (
            sum(len(client.acknowledged) for client in clients),
            sum(client.refused for client in clients),
        )

    since, (admitted, refused) = monotonic(), counts()
    until(
        lambda: (
            monotonic() - since > SECONDS / 2
            and counts()[0] >= admitted + more
            and counts()[1] >= refused + more
        ),
        "tasks to be admitted and refused",
        SECONDS + 60,
    )


def test_two_servers_respect_the_rate_of_a_tenant_although_one_is_killed(lab: Lab) -> None:
    servers = [lab.start_server(0), lab.start_server(1)]
    key = asyncio.run(create_tenant(lab.dsn))
    clients = [LimitedClient(number, lab.urls, key) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        await_progress(clients, more=BURST + 5)
        servers[0].kill()
        await_progress(clients, more=5)
    finally:
        for client in clients:
            client.stopped.set()
        for client in clients:
            client.join()
    assert [client.error for client in clients if client.error] == []
    stored = asyncio.run(read_stored(lab.dsn))
    acknowledged = [task for client in clients for task in client.acknowledged]
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) <= stored.keys()
    assert len(stored) - len(acknowledged) <= sum(client.unknown for client in clients)
    assert excess(list(stored.values())) <= 1e-6
