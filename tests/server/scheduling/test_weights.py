"""A changed weight divides the nodes from the next scheduling round on."""

from collections import Counter

import pytest


@pytest.fixture
async def node(lab):
    """A node with six cores, and more tasks of two tenants than it can run."""
    node = await lab.node(cpu=6)
    for by in (lab.client, lab.stranger):
        await lab.submit_all([lab.spec(cpu=1) for _ in range(20)], by=by)
    return node


async def restart_all(lab, node):
    """End all tasks on the node, schedule until it is full, and count its tasks by tenant."""
    for ref in await node.starts():
        await node.report(ref)
    # A round that finds the limits changed starts nothing, and is repeated at once.
    while await lab.components.resource_manager.tick():
        pass
    rows = await lab.conn.fetch(
        "select t.name from live join tenants t on t.id = tenant_id where status = 'running'"
    )
    return Counter(row["name"] for row in rows)


async def test_a_tenants_weight_applies_from_the_next_round(lab, node):
    assert await restart_all(lab, node) == {"acme": 3, "default": 3}
    for weight, expected in ((5, 5), (2, 4), (None, 3)):
        await lab.components.tenants.update(lab.client, lab.stranger.tenant_id, weight=weight)
        assert await restart_all(lab, node) == {"acme": expected, "default": 6 - expected}


async def test_a_weight_changed_on_another_server_applies_from_the_next_round(lab, node):
    assert await restart_all(lab, node) == {"acme": 3, "default": 3}
    await lab.server().tenants.update(lab.client, lab.stranger.tenant_id, weight=5)
    assert await restart_all(lab, node) == {"acme": 5, "default": 1}


async def test_a_tenants_own_weight_goes_before_that_of_its_plan(lab, node):
    change = lab.components.tenants.update
    await change(lab.client, lab.stranger.tenant_id, plan="standard")
    assert await restart_all(lab, node) == {"acme": 4, "default": 2}
    await change(lab.client, lab.stranger.tenant_id, weight=1)
    assert await restart_all(lab, node) == {"acme": 3, "default": 3}
    await change(lab.client, lab.stranger.tenant_id, weight=None)
    assert await restart_all(lab, node) == {"acme": 4, "default": 2}
