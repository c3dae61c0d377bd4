"""Many ends for which one task waits are counted down together, and none is left out."""

from datetime import timedelta

from duly.server.settler import IN_VAIN, PAUSE


async def test_ends_that_set_nobody_free_are_gathered_and_the_last_is_not_left_out(lab):
    node = await lab.node()
    manager = lab.parts.queue_manager
    ids = [await lab.submit() for _ in range(IN_VAIN + 4)]
    last = await lab.submit(depends_on=[str(task) for task in ids])
    left = len(ids)
    while left:
        await lab.schedule()
        for ref in await node.starts():
            assert await node.report(ref)
            await manager.tick()
            left -= 1
    # The first ones were counted as they came, and the others wait for each other.
    assert 0 < (await lab.live(last))["blocked_by"] < len(ids) - IN_VAIN
    assert manager.pause() == timedelta(seconds=PAUSE)
    await lab.clock.move(manager.pause())
    # Nobody was woken for these, so the pause must not be a long one.
    assert manager.pause() == timedelta(0)
    await manager.tick()
    assert await lab.status(last) == "waiting"
