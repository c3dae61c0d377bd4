"""A round looks at so many tasks at most."""

import pytest

from duly.config import SchedulingSettings, Settings


@pytest.fixture
def settings():
    return Settings(scheduling=SchedulingSettings(window=3))


async def test_a_round_takes_no_more_and_says_that_there_is_more(lab):
    node = await lab.node(cpu=64)
    await lab.submit_all([lab.spec() for _ in range(5)])
    assert await lab.parts.resource_manager.tick() is True
    assert len(await lab.run_on(node)) == 3
    assert await lab.parts.resource_manager.tick() is False
    assert len(await lab.run_on(node)) == 5


async def test_tasks_that_fit_nowhere_do_not_fill_it(lab):
    node = await lab.node(cpu=1)
    await lab.submit_all([lab.spec(cpu=4, delay_tolerance="1s") for _ in range(9)])
    small = await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.run_on(node) == {small}


async def test_a_flood_of_one_tenant_does_not_hide_the_other(lab):
    node = await lab.node(cpu=64)
    await lab.submit_all([lab.spec() for _ in range(20)])
    theirs = await lab.submit(by=lab.stranger, delay_tolerance="1s")
    await lab.schedule()
    assert theirs in await lab.run_on(node)
