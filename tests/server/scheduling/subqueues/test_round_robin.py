"""Tenants take turns, also if a round cannot consider the subqueues of all of them."""

import random
from collections import Counter

import pytest

from duly.config import SchedulingSettings, Settings
from duly.model.requests.amounts import ResourcesRequest
from duly.model.task import Outcome
from duly.policy.queueing import rank
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from tests.server.chaos import Chaos, Row
from tests.server.lab import seconds

TENANTS = 12


@pytest.fixture
def settings():
    """A small window. Tasks keep their queue when they fail, so that rank alone orders them."""
    scheduling = SchedulingSettings(window=8, promote_retries=False, urgent_headroom=0)
    return Settings(scheduling=scheduling)


async def tenants(lab, count):
    """Create `count` tenants, and return a credential of each."""
    names = [f"tenant-{number}" for number in range(count)]
    for name in names:
        await lab.conn.execute("insert into tenants (name, plan) values ($1, 'unlimited')", name)
    return [await lab.credential(name) for name in names]


class Crowd(Chaos):
    """Chaos with many tenants, whose tasks all have one shape."""

    async def submit(self):
        if len(await self.rows("waiting")) > 90:
            return
        for by in self.dice.sample(self.clients, self.dice.randint(1, len(self.clients))):
            count = self.dice.choice((1, 1, 2, 9))
            await self.lab.submit_all([self.spec() for _ in range(count)], by=by)

    def spec(self):
        return self.lab.spec(
            cpu=1,
            delay_tolerance=self.dice.choice((20, 20, 21)),
            priority=self.dice.choice((0, 0, 1)),
        )

    async def fair_share(self):
        """Return how many tasks each tenant with waiting tasks may run before the others."""
        waiting = {row["tenant_id"] for row in await self.rows("waiting")}
        others = [row for row in await self.rows("running") if row["tenant_id"] not in waiting]
        return (self.room - len(others)) / len(waiting) if waiting else self.room

    async def cancel(self):
        """Cancel nothing."""

    async def update(self):
        """Update nothing."""


@pytest.mark.parametrize("seed", range(10))
async def test_tenants_within_their_fair_share_go_first_and_start_their_tasks_by_rank(lab, seed):
    dice = random.Random(seed)
    room = dice.choice((1, 2, 5, 11, 20))
    crowd = Crowd(lab, await lab.node(cpu=room), room, dice, await tenants(lab, TENANTS))
    for _ in range(40):
        await crowd.step()
        before = {row["id"] for row in await crowd.rows("running")}
        fair_share = await crowd.fair_share()
        while await lab.components.resource_manager.tick():
            pass
        running, waiting = await crowd.rows("running"), await crowd.rows("waiting")
        assert not waiting or len(running) == room
        started = [row for row in running if row["id"] not in before]
        held = Counter(row["tenant_id"] for row in running)
        if any(held[row["tenant_id"]] > fair_share for row in started):
            assert all(held[row["tenant_id"]] + 1 > fair_share for row in waiting)
        for row in started:
            own = [Row(other) for other in waiting if other["tenant_id"] == row["tenant_id"]]
            assert all(rank(other) > rank(Row(row)) for other in own)


async def test_subqueues_with_unknown_start_by_are_served_at_once(lab):
    node = await lab.node(cpu=2)
    for by in await tenants(lab, TENANTS):
        await lab.submit_all([lab.spec(cpu=1)] * 2, by=by)
    await lab.schedule()
    for ref in await node.starts():
        await node.report(ref, Outcome.SUCCEEDED)
    prioritizer = lab.components.resource_manager._prioritizer
    prioritizer.mark_ready(
        (key, UNKNOWN_START_BY) for key in dict(prioritizer._ready_queues.items())
    )
    await lab.components.resource_manager.tick()
    assert len(await lab.run_on(node)) == 2


async def test_a_tenant_that_started_nothing_keeps_its_place_in_the_round_robin(lab):
    node = await lab.node(cpu=1)
    clients = await tenants(lab, TENANTS)
    owners = {}
    for _ in range(9):
        for by in clients:
            owners[await lab.submit(by=by, cpu=1)] = by.tenant_id
    for memory in range(100, 109):
        resources = ResourcesRequest(cpu=1, memory_mb=memory)
        owners[await lab.submit(resources=resources, delay_tolerance=3600)] = lab.client.tenant_id
    started = Counter(dict.fromkeys(owners.values(), 0))
    for _ in range(9 * (TENANTS + 1)):
        await lab.schedule()
        (ref,) = await node.starts()
        started[owners[ref.task]] += 1
        await node.report(ref, Outcome.SUCCEEDED)
        assert max(started.values()) - min(started.values()) <= 1


async def test_a_short_task_is_placed_beside_a_hold(lab):
    node = await lab.node(cpu=2)
    first = await lab.run(node, cpu=1, execution_cap="1h")
    await lab.submit(cpu=2, delay_tolerance="20s", execution_cap="1h")
    await lab.clock.move(seconds(10))
    await node.heartbeat(first)
    clients = await tenants(lab, TENANTS)
    caps = ["2h", "2h", "60s", *["2h"] * (TENANTS - 3)]
    tasks = [
        await lab.submit(by=by, cpu=1, delay_tolerance="300s", execution_cap=cap)
        for by, cap in zip(clients, caps, strict=True)
    ]
    await lab.components.cluster_manager.tick()
    while await lab.components.resource_manager.tick():
        pass
    assert await lab.run_on(node) == {first.task, tasks[2]}
