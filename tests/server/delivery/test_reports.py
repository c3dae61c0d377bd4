import pytest

from duly import wire
from duly.model.task import Outcome
from tests.server.lab import seconds


async def snapshot(lab):
    """Return every row that a report could change."""
    tables = ("live", "attempts", "ends", "dead_letters", "events")
    return [await lab.conn.fetch(f"select * from {table} order by 1, 2") for table in tables]


async def test_a_report_that_was_accepted_is_accepted_again_and_changes_nothing(lab):
    node = await lab.node()
    ref = await lab.run(node)
    assert await node.report(ref, Outcome.FAILED)
    before = await snapshot(lab)
    await lab.clock.move(seconds(1))
    assert await node.report(ref, Outcome.FAILED)
    assert await node.report(ref, Outcome.SUCCEEDED)
    assert await snapshot(lab) == before


@pytest.mark.parametrize("wrong", [(1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)])
async def test_a_report_of_an_attempt_that_is_not_held_is_stale(lab, wrong):
    node = await lab.node()
    ref = await lab.run(node)
    before = await snapshot(lab)
    other = wire.AttemptRef(ref.task + wrong[0], ref.attempt + wrong[1], ref.token + wrong[2])
    assert not await node.report(other)
    assert await snapshot(lab) == before


async def test_a_report_of_another_node_is_stale(lab):
    node, other = await lab.node(), await lab.node(cpu=0.1)
    ref = await lab.run(node)
    before = await snapshot(lab)
    assert not await other.report(ref)
    assert await snapshot(lab) == before
    assert await node.report(ref)
    assert not await other.report(ref)


async def test_a_report_of_an_attempt_that_was_handed_over_is_stale(lab):
    node = await lab.node()
    old = await lab.run(node)
    node = await lab.rejoin(node)
    await lab.sweep()
    new = await lab.start(node, old.task)
    before = await snapshot(lab)
    assert not await node.report(old)
    assert await snapshot(lab) == before
    assert await node.report(new)
    assert not await node.report(old)
    assert await lab.attempts(old.task) == [(1, "lost"), (2, "succeeded")]


async def test_a_stale_report_is_stale_even_beside_a_current_one(lab):
    node = await lab.node()
    old = await lab.run(node)
    node = await lab.rejoin(node)
    await lab.sweep()
    new = await lab.start(node, old.task)
    reports = [wire.AttemptReport(ref=ref, outcome=Outcome.SUCCEEDED) for ref in (old, new, new)]
    assert await lab.components.queue_manager.report(node.id, reports) == [False, True, True]
    assert await lab.attempts(old.task) == [(1, "lost"), (2, "succeeded")]


async def test_a_report_of_a_replaced_incarnation_is_accepted_until_it_is_swept(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.rejoin(node)
    assert await node.report(ref)
    await lab.sweep()
    assert await lab.status(ref.task) == "done"


async def test_a_report_of_an_attempt_requeued_when_its_node_left_is_stale(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.components.cluster_manager.leave(node.id, node.incarnation)
    await lab.sweep()
    before = await snapshot(lab)
    assert not await node.report(ref)
    assert await snapshot(lab) == before


async def test_an_empty_list_of_reports_has_an_empty_response(lab):
    node = await lab.node()
    assert await lab.components.queue_manager.report(node.id, []) == []
