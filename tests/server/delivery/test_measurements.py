"""What a node told of its attempts is all that is known of them when it is lost."""

import pytest

from duly.wire import AttemptRef, Measured
from tests.server.lab import seconds


async def lose(lab, node):
    """Start the agent anew, so that what it ran is lost."""
    node = await lab.rejoin(node)
    await lab.sweep()
    return node


async def recorded(lab, ref):
    """Return what is stored of an attempt that has ended."""
    return await lab.conn.fetchrow(
        "select outcome::text, leased_at, started_at, finished_at, cpu_seconds, peak_memory_mb,"
        " wall_seconds from attempts where task_id = $1 and attempt = $2",
        ref.task,
        ref.attempt,
    )


async def test_a_lost_attempt_has_the_start_and_the_usage_that_its_node_told(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.clock.move(seconds(10))
    begun_at = lab.clock.now - seconds(8)
    await lab.parts.measurements.note(node.id, [Measured(ref, 8.0)])
    await lab.clock.move(seconds(10))
    await lab.parts.measurements.note(node.id, [Measured(ref, 18.5, 4.25, 96.5)])
    await lab.clock.move(seconds(10))
    await lose(lab, node)
    row = await recorded(lab, ref)
    assert (row["outcome"], row["started_at"], row["finished_at"]) == (
        "lost",
        begun_at,
        lab.clock.now,
    )
    assert (row["cpu_seconds"], row["peak_memory_mb"], row["wall_seconds"]) == (4.25, 96.5, 28.0)


async def test_of_a_lost_attempt_that_was_never_told_of_nothing_is_known(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lose(lab, node)
    row = await recorded(lab, ref)
    assert row["outcome"] == "lost"
    assert [row[name] for name in ("started_at", "cpu_seconds", "wall_seconds")] == [None] * 3


async def test_what_was_told_of_an_attempt_is_not_that_of_the_next_one(lab):
    node = await lab.node()
    first = await lab.run(node)
    await lab.parts.measurements.note(node.id, [Measured(first, 0.0, 1.0, 2.0)])
    node = await lose(lab, node)
    second = await lab.start(node, first.task)
    await lab.parts.measurements.note(node.id, [Measured(first, 100.0, 100.0, 100.0)])
    await lose(lab, node)
    assert (await recorded(lab, first))["cpu_seconds"] == 1.0
    row = await recorded(lab, second)
    assert [row[name] for name in ("started_at", "cpu_seconds", "wall_seconds")] == [None] * 3


async def test_nobody_tells_of_the_attempts_of_others(lab):
    node, other = await lab.node(), await lab.node(cpu=0.1)
    ref = await lab.run(node)
    forged = [Measured(ref, 0.0, 1.0, 1.0), Measured(AttemptRef(2**63, 1, 1), 0.0)]
    await lab.parts.measurements.note(other.id, forged)
    assert (await lab.live(ref.task))["measured_token"] is None


@pytest.mark.parametrize(
    ("ran", "amount", "kept"), [(float("nan"), float("nan"), 0.0), (1e300, -1.0, 0.0)]
)
async def test_what_cannot_be_is_bent_to_what_can_be_stored(lab, ran, amount, kept):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.parts.measurements.note(node.id, [Measured(ref, ran, amount, amount)])
    live = await lab.live(ref.task)
    assert live["leased_at"] <= live["running_since"] <= lab.clock.now
    assert (live["cpu_seconds"], live["peak_memory_mb"]) == (kept, kept)


async def test_what_one_server_was_told_another_knows(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.server().measurements.note(node.id, [Measured(ref, 0.0, 1.0, 2.0)])
    await lose(lab, node)
    assert (await recorded(lab, ref))["peak_memory_mb"] == 2.0
