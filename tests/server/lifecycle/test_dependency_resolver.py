"""Ends that fan in to one task are settled together, and none is left out."""

from datetime import timedelta

from duly.server.lifecycle.dependency_resolver import IDLE_PAUSE_SECONDS, MAX_IDLE_PASSES


async def test_ends_that_unblock_no_task_are_batched_and_the_last_is_settled(lab):
    node = await lab.node()
    manager = lab.components.queue_manager
    ids = [await lab.submit() for _ in range(MAX_IDLE_PASSES + 4)]
    last = await lab.submit(depends_on=[str(task) for task in ids])
    left = len(ids)
    while left:
        await lab.schedule()
        for ref in await node.starts():
            assert await node.report(ref)
            await manager.tick()
            left -= 1
    # The first ends were settled one by one; the others are batched.
    assert 0 < (await lab.live(last))["blocked_by"] < len(ids) - MAX_IDLE_PASSES
    assert manager.pause() == timedelta(seconds=IDLE_PAUSE_SECONDS)
    await lab.clock.move(manager.pause())
    # No wake-up was sent for these, so the pause must end by itself.
    assert manager.pause() == timedelta(0)
    await manager.tick()
    assert await lab.status(last) == "waiting"
