"""One tenant hammers two servers, one of which is killed: what is admitted stays exactly in bounds.

`make torture` does so for a minute.
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


async def make_tenant(dsn: str) -> str:
    """Make a tenant with a rate, and return its key."""
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


class Hammer(threading.Thread):
    """A client that submits again and again, one task in three of a batch."""

    def __init__(self, number: int, urls: str, key: str) -> None:
        super().__init__()
        # Every other one begins with the other server; nobody waits for a bucket to fill.
        order = urls.split(",")[:: -1 if number % 2 else 1]
        patience = Patience(total=timedelta(seconds=0.8), max_delay=timedelta(seconds=0.2))
        self._client = Client(",".join(order), key, patience=patience)
        self._number = number
        self.over = threading.Event()
        self.told: list[str] = []
        self.refused = 0
        self.unknown = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        turn = 0
        try:
            with self._client:
                while not self.over.is_set():
                    turn += 1
                    self._submit(turn)
        except BaseException as error:
            self.error = error

    def _submit(self, turn: int) -> None:
        key = f"{self._number}-{turn}"
        task = {"command": ["true"], "run_at": "2100-01-01T00:00:00Z"}
        many = 3 if turn % 5 == 0 else 1
        try:
            if many > 1:
                self.told += self._client.submit_many([task] * many, idempotency_key=key)
            else:
                self.told.append(self._client.submit(**task, idempotency_key=key)["id"])
        except LimitExceeded:
            self.refused += 1
        except Unavailable:
            self.unknown += many


def excess(stored: list[datetime]) -> float:
    """Return by how much the fullest window exceeds burst and rate; at most 0 if all is well."""
    worst, lowest = -float(BURST), float("inf")
    for place, at in enumerate(stored):
        ahead = place - PER_SECOND * (at - stored[0]).total_seconds()
        lowest = min(lowest, ahead)
        worst = max(worst, ahead - lowest + 1 - BURST)
    return worst


def test_the_fullest_window_is_found() -> None:
    begin = datetime(2026, 1, 1)
    full = [begin] * BURST
    assert excess(full) == 0
    assert excess([*full, begin]) == 1
    later = [begin + timedelta(seconds=(one + 1) / PER_SECOND) for one in range(30)]
    assert excess([*full, *later]) == pytest.approx(0)
    assert excess([begin, *(one + timedelta(seconds=99) for one in [*full, begin])]) == 1


def go_on(hammers: list[Hammer], *, more: int) -> None:
    """Wait for half of the time, and until so many tasks were admitted and as many refused."""

    def counts() -> tuple[int, int]:
        return sum(len(one.told) for one in hammers), sum(one.refused for one in hammers)

    since, (told, refused) = monotonic(), counts()
    until(
        lambda: (
            monotonic() - since > SECONDS / 2
            and counts()[0] >= told + more
            and counts()[1] >= refused + more
        ),
        "tasks to be admitted and refused",
        SECONDS + 60,
    )


def test_two_servers_admit_what_one_tenant_may_although_one_is_killed(lab: Lab) -> None:
    servers = [lab.start_server(0), lab.start_server(1)]
    key = asyncio.run(make_tenant(lab.dsn))
    hammers = [Hammer(number, lab.urls, key) for number in range(CLIENTS)]
    for hammer in hammers:
        hammer.start()
    try:
        go_on(hammers, more=BURST + 5)
        servers[0].kill()
        go_on(hammers, more=5)
    finally:
        for hammer in hammers:
            hammer.over.set()
        for hammer in hammers:
            hammer.join()
    assert [hammer.error for hammer in hammers if hammer.error] == []
    stored = asyncio.run(read_stored(lab.dsn))
    told = [task for hammer in hammers for task in hammer.told]
    assert len(told) == len(set(told))
    assert set(told) <= stored.keys()
    assert len(stored) - len(told) <= sum(hammer.unknown for hammer in hammers)
    assert excess(list(stored.values())) <= 1e-6
