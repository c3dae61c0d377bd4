"""A lost attempt keeps the start and the usage that its node measured last."""

import pytest

from duly.wire import AttemptRef, MeasuredUsage
from tests.server.lab import seconds


async def lose(lab, node):
    """Restart the agent, so that its attempts are lost."""
    node = await lab.rejoin(node)
    await lab.sweep()
    return node


async def recorded(lab, ref):
    """Return the stored record of an ended attempt."""
    return await lab.conn.fetchrow(
        "select outcome::text, leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb,"
        " wall_seconds from attempts where task_id = $1 and attempt = $2",
        ref.task,
        ref.attempt,
    )


async def test_a_lost_attempt_has_the_start_and_the_usage_that_were_measured(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.clock.move(seconds(10))
    begun_at = lab.clock.now - seconds(8)
    await lab.components.measurements.record(node.id, [MeasuredUsage(ref, 8.0)])
    await lab.clock.move(seconds(10))
    await lab.components.measurements.record(node.id, [MeasuredUsage(ref, 18.5, 4.25, 96.5)])
    await lab.clock.move(seconds(10))
    await lose(lab, node)
    row = await recorded(lab, ref)
    assert (row["outcome"], row["started_at"], row["finished_at"]) == (
        "lost",
        begun_at,
        lab.clock.now,
    )
    assert (row["cpu_seconds"], row["peak_memory_mb"], row["wall_seconds"]) == (4.25, 96.5, 28.0)


async def test_a_lost_attempt_that_was_never_measured_has_no_start_and_no_usage(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lose(lab, node)
    row = await recorded(lab, ref)
    assert row["outcome"] == "lost"
    assert [row[name] for name in ("started_at", "cpu_seconds", "wall_seconds")] == [None] * 3


async def test_measurements_of_an_attempt_are_not_those_of_the_next_one(lab):
    node = await lab.node()
    first = await lab.run(node)
    await lab.components.measurements.record(node.id, [MeasuredUsage(first, 0.0, 1.0, 2.0)])
    node = await lose(lab, node)
    second = await lab.start(node, first.task)
    await lab.components.measurements.record(node.id, [MeasuredUsage(first, 100.0, 100.0, 100.0)])
    await lose(lab, node)
    assert (await recorded(lab, first))["cpu_seconds"] == 1.0
    row = await recorded(lab, second)
    assert [row[name] for name in ("started_at", "cpu_seconds", "wall_seconds")] == [None] * 3


async def test_a_node_cannot_measure_the_attempts_of_another(lab):
    node, other = await lab.node(), await lab.node(cpu=0.1)
    ref = await lab.run(node)
    forged = [MeasuredUsage(ref, 0.0, 1.0, 1.0), MeasuredUsage(AttemptRef(2**63, 1, 1), 0.0)]
    await lab.components.measurements.record(other.id, forged)
    assert (await lab.live(ref.task))["measured_token"] is None


@pytest.mark.parametrize(
    ("ran", "amount", "kept"), [(float("nan"), float("nan"), 0.0), (1e300, -1.0, 0.0)]
)
async def test_impossible_amounts_are_clamped(lab, ran, amount, kept):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.components.measurements.record(node.id, [MeasuredUsage(ref, ran, amount, amount)])
    live = await lab.live(ref.task)
    assert live["leased_at"] <= live["running_since"] <= lab.clock.now
    assert (live["cpu_seconds"], live["peak_memory_mb"]) == (kept, kept)


async def test_measurements_sent_to_one_server_are_known_to_all(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.server().measurements.record(node.id, [MeasuredUsage(ref, 0.0, 1.0, 2.0)])
    await lose(lab, node)
    assert (await recorded(lab, ref))["peak_memory_mb"] == 2.0


async def test_an_unknown_peak_of_memory_is_stored_as_unknown(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.components.measurements.record(node.id, [MeasuredUsage(ref, 1.0, 0.5, None)])
    await lose(lab, node)
    row = await recorded(lab, ref)
    assert (row["cpu_seconds"], row["peak_memory_mb"]) == (0.5, None)
