"""A marked attempt occupies its node until its processes are gone, although its task has ended."""

import asyncio

import pytest

from duly import telemetry, wire
from duly.errors import Conflict
from duly.model.task import Outcome
from duly.server.scheduling.running_index import RunningIndex
from duly.store.attempts import limits
from duly.store.fleet import overview, reservations
from tests.server.lab import seconds
from tests.server.lifecycle.test_marking import mark
from tests.server.scheduling.test_quotas import limit
from tests.server.scheduling.test_reservations import free, reserve


@pytest.fixture(params=["counted", "indexed"], autouse=True)
def running_index(request, lab):
    """Count running attempts in every round, or use the index because counts are slow."""
    if request.param == "indexed":
        lab.components.resource_manager._running_index = RunningIndex(
            seconds(30), quick_count=seconds(-1), max_slow_counts=1
        )


async def marked(lab, node, *, by=None, **fields):
    """Return an attempt with a core of the node, and whose task has been marked."""
    task = await lab.submit(cpu=1, by=by, **fields)
    assert await starts(lab, task)
    (ref,) = await node.starts()
    await mark(lab, task, by=by)
    return ref


async def starts(lab, task):
    """Say whether a task starts now."""
    for _ in range(3):
        await lab.schedule()
    return await lab.status(task) == "running"


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.SUCCEEDED, Outcome.FAILED])
async def test_the_next_task_starts_when_the_node_has_reported_the_end(lab, outcome):
    node = await lab.node(cpu=1)
    ref = await marked(lab, node)
    other = await lab.submit(cpu=1)
    assert not await starts(lab, other)
    assert not await node.report(ref, outcome)
    assert await starts(lab, other)
    assert await lab.count("stopping_attempts") == 0


async def test_an_attempt_that_was_leased_and_marked_between_two_rounds_counts(lab):
    node = await lab.node(cpu=1)
    await lab.schedule()
    ref = await lab.run(node, cpu=1)
    await mark(lab, ref.task)
    assert not await starts(lab, await lab.submit(cpu=1))


async def test_dependants_go_on_at_once(lab):
    node, other = await lab.node(cpu=1), await lab.node(cpu=1)
    ref = await lab.run(node, cpu=1)
    dependant = await lab.submit(cpu=1, depends_on=[str(ref.task)])
    await mark(lab, ref.task)
    await lab.sweep()
    assert await starts(lab, dependant)
    assert [start.task for start in await other.starts()] == [dependant]


async def test_what_the_node_does_not_have_is_reported_and_frees_its_room(lab):
    node, task = await lab.node(cpu=1), await lab.submit(cpu=1)
    await lab.schedule()
    await mark(lab, task)
    (stop,) = (await node.poll()).stop
    assert (stop.ref.task, stop.is_settled) == (task, True)
    assert await node.heartbeat() == [stop]
    await node.report(stop.ref, Outcome.CANCELLED)
    assert await node.heartbeat() == []
    assert await starts(lab, await lab.submit(cpu=1))


async def test_neither_another_node_nor_another_token_frees_its_room(lab):
    node, other = await lab.node(cpu=1), await lab.node(cpu=0.1)
    ref = await marked(lab, node)
    waits = await lab.submit(cpu=1)
    await other.report(ref, Outcome.CANCELLED)
    await node.report(wire.AttemptRef(ref.task, ref.attempt, ref.token + 1), Outcome.CANCELLED)
    await node.report(wire.AttemptRef(ref.task, ref.attempt + 1, ref.token), Outcome.CANCELLED)
    assert not await starts(lab, waits)
    await node.report(ref, Outcome.CANCELLED)
    await node.report(ref, Outcome.CANCELLED)
    assert await starts(lab, waits)


async def test_an_agent_that_joins_again_has_nothing_left_of_it(lab):
    node = await lab.node(cpu=1)
    await marked(lab, node)
    other = await lab.submit(cpu=1)
    await lab.rejoin(node, cpu=1)
    await lab.sweep()
    assert await lab.count("stopping_attempts") == 0
    assert await starts(lab, other)


async def test_a_node_whose_lease_has_expired_keeps_nothing(lab):
    node = await lab.node(cpu=1)
    await marked(lab, node)
    await lab.silence(lab.settings.leases.ttl * 3)
    assert await lab.count("stopping_attempts") == 0


async def test_its_room_cannot_be_reserved(lab):
    node = await lab.node(cpu=1)
    ref = await marked(lab, node)
    assert await free(lab, node) == 0
    with pytest.raises(Conflict, match="busy"):
        await reserve(lab, 1)
    await node.report(ref, Outcome.CANCELLED)
    await reserve(lab, 1)


async def test_it_counts_against_the_limits_of_its_tenant(lab):
    node = await lab.node(cpu=4)
    await limit(lab, "acme", running=1)
    ref = await marked(lab, node, by=lab.stranger)
    async with lab.database.connection() as conn:
        usage = await limits.read_current_usage(conn, lab.stranger.tenant_id)
    assert usage.running == 1
    other = await lab.submit(cpu=1, by=lab.stranger)
    assert not await starts(lab, other)
    await node.report(ref, Outcome.CANCELLED)
    assert await starts(lab, other)


async def test_it_counts_under_its_concurrency_key(lab):
    node = await lab.node(cpu=4)
    key = {"key": "one", "limit": 1}
    ref = await marked(lab, node, concurrency=key)
    other = await lab.submit(cpu=1, concurrency=key)
    assert not await starts(lab, other)
    await node.report(ref, Outcome.CANCELLED)
    assert await starts(lab, other)


async def test_operators_see_what_it_occupies(lab):
    node = await lab.node(cpu=1)
    ref = await marked(lab, node)
    await lab.components.cluster_manager.drain(node.id, draining=True)
    async with lab.database.connection() as conn:
        (view,) = await overview.read_nodes(conn)
        (held,) = await reservations.read_allocations(conn, lab.client.tenant_id, limit=10)
        assert (view.status, view.tasks, view.free.cpu_milli) == ("draining", 1, 0)
        assert (held.id, held.kind, held.node) == (ref.task, "task", node.name)
        await node.report(ref, Outcome.CANCELLED)
        (view,) = await overview.read_nodes(conn)
        assert (view.status, view.tasks, view.free.cpu_milli) == ("drained", 0, 1000)


async def test_the_scheduler_is_woken_when_its_room_is_free(lab):
    node = await lab.node(cpu=1)
    ref = await marked(lab, node)
    lab.components.resource_manager._nudged.clear()
    await node.report(ref, Outcome.CANCELLED)
    async with asyncio.timeout(1):
        await lab.components.resource_manager._nudged.wait()


async def test_its_report_is_no_stale_one(lab):
    node = await lab.node(cpu=1)
    ref = await marked(lab, node)
    before = telemetry.REPORTS_STALE._value.get()
    await node.report(ref, Outcome.CANCELLED)
    assert telemetry.REPORTS_STALE._value.get() == before
