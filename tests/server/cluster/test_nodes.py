"""Nodes join, stop, have their capacity overridden, and are removed."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly import wire
from duly.errors import Conflict, Fenced, Invalid, Unauthenticated
from duly.model.task import Outcome
from duly.store.accounts.tenants import generate_key
from duly.store.fleet import nodes
from tests.server.lab import between_placing_and_leasing, capacity_of, reason_of

HOUR = timedelta(hours=1)


def asks(name="a", key=None, cpu=4.0):
    return wire.JoinRequest(name=name, key=key, capacity=wire.capacity(capacity_of(cpu, 4096)))


async def test_a_join_whose_response_was_lost_can_be_repeated(lab):
    manager, key = lab.components.cluster_manager, generate_key()
    token = await manager.create_token(HOUR)
    first = await manager.join(token, asks(key=key))
    again = await manager.join(token, asks(key=key))
    known = await manager.join(key, asks())
    assert first.node == again.node == known.node
    assert first.incarnation < again.incarnation < known.incarnation


async def test_two_concurrent_copies_of_a_join_create_one_node(lab):
    manager, key = lab.components.cluster_manager, generate_key()
    token = await manager.create_token(HOUR)
    joined = await asyncio.gather(*(manager.join(token, asks(key=key)) for _ in range(4)))
    assert len({one.node for one in joined}) == 1
    assert await lab.count("nodes") == 1
    assert await lab.count("incarnations where ended_at is null") == 1


async def test_a_token_admits_one_of_many_concurrent_nodes(lab):
    manager = lab.components.cluster_manager
    token = await manager.create_token(HOUR)
    requests = [asks(name=f"n{number}", key=generate_key()) for number in range(8)]
    joined = await asyncio.gather(
        *(manager.join(token, request) for request in requests), return_exceptions=True
    )
    refused = [one for one in joined if isinstance(one, Unauthenticated)]
    assert len(refused) == 7
    assert {"--uses" in one.message for one in refused} == {True}
    assert await lab.count("nodes") == 1


async def test_a_token_admits_as_many_nodes_as_it_has_uses(lab):
    manager = lab.components.cluster_manager
    token = await manager.create_token(HOUR, uses=2)
    for name in ("a", "b"):
        await manager.join(token, asks(name=name, key=generate_key()))
    with pytest.raises(Unauthenticated, match="has been used"):
        await manager.join(token, asks(name="c", key=generate_key()))
    unlimited = await manager.create_token(HOUR, uses=None)
    for name in ("c", "d", "e"):
        await manager.join(unlimited, asks(name=name, key=generate_key()))
    assert await lab.count("nodes") == 5


async def test_a_refused_join_costs_no_use_of_its_token(lab):
    manager = lab.components.cluster_manager
    await manager.join(await manager.create_token(HOUR), asks(name="a", key=generate_key()))
    token = await manager.create_token(HOUR)
    with pytest.raises(Conflict, match="--name"):
        await manager.join(token, asks(name="a", key=generate_key()))
    with pytest.raises(Invalid):
        await manager.join(token, asks(name="b", key="short"))
    await manager.join(token, asks(name="b", key=generate_key()))


async def test_a_join_cannot_be_repeated_with_an_expired_token(lab):
    manager, key = lab.components.cluster_manager, generate_key()
    token = await manager.create_token(HOUR)
    joined = await manager.join(token, asks(key=key))
    await lab.clock.move(HOUR)
    with pytest.raises(Unauthenticated, match="has expired"):
        await manager.join(token, asks(key=key))
    assert (await manager.join(key, asks())).node == joined.node


async def test_a_stopping_node_gets_no_more_tasks(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await node.heartbeat(ref, stopping=True)
    task = await lab.submit()
    await lab.schedule()
    assert await lab.status(task) == "waiting"
    await node.heartbeat(ref)
    await lab.schedule()
    assert await lab.status(task) == "waiting"
    assert await node.report(ref)
    again = await lab.rejoin(node)
    assert await lab.start(again, task)


async def test_a_placement_on_a_node_that_has_just_begun_to_stop_is_not_leased(lab):
    node = await lab.node()
    task = await lab.submit()
    await between_placing_and_leasing(lab, node.heartbeat(stopping=True))
    assert await lab.status(task) == "waiting"


async def test_an_overridden_capacity_is_never_exceeded(lab):
    node = await lab.node(cpu=4)
    first = await lab.run(node, cpu=2)
    await lab.components.cluster_manager.override_capacity(node.id, {"cpu_milli": 2500})
    second = await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.run_on(node) == {first.task}
    again = await lab.rejoin(node, cpu=8)
    await lab.sweep()
    await lab.schedule()
    assert await lab.run_on(again) == {first.task}
    await lab.components.cluster_manager.override_capacity(node.id, {})
    await lab.schedule()
    assert await lab.run_on(again) == {first.task, second}


async def test_a_placement_by_an_outdated_capacity_is_not_leased(lab):
    node = await lab.node(cpu=4)
    task = await lab.submit(cpu=3)
    smaller = lab.components.cluster_manager.override_capacity(node.id, {"cpu_milli": 2000})
    await between_placing_and_leasing(lab, smaller)
    assert await lab.status(task) == "waiting"


async def test_a_removed_node_is_fenced_at_once_and_its_tasks_go_to_another(lab):
    node = await lab.node()
    ref = await lab.run(node)
    other = await lab.node()
    await lab.components.cluster_manager.remove(node.id)
    with pytest.raises(Fenced):
        await node.heartbeat(ref)
    with pytest.raises(Fenced):
        await node.poll(ref)
    await lab.sweep()
    assert await lab.attempts(ref.task) == [(1, "lost")]
    assert (await lab.start(other, ref.task)).attempt == 2
    assert not await node.report(ref)


async def test_a_removed_node_cannot_join_again_but_its_name_can_be_used(lab):
    manager, key = lab.components.cluster_manager, generate_key()
    token = await manager.create_token(HOUR, uses=2)
    joined = await manager.join(token, asks(key=key))
    await manager.remove(joined.node)
    for secret in (key, token):
        with pytest.raises(Unauthenticated, match="This node was removed"):
            await manager.join(secret, asks(key=key))
    with pytest.raises(Unauthenticated):
        await lab.components.authenticator.authenticate_node(key)
    assert (await manager.join(token, asks(key=generate_key()))).node != joined.node


async def test_a_task_runs_only_on_nodes_with_the_labels_that_it_requires(lab):
    plain, fast = await lab.node(), await lab.node(labels={"disk": "ssd", "zone": "a"})
    tasks = [await lab.submit(requires={"disk": "ssd"}) for _ in range(3)]
    await lab.schedule()
    assert await lab.run_on(plain) == set()
    assert await lab.run_on(fast) == set(tasks)


async def test_a_task_that_requires_labels_of_no_node_ends_like_one_that_fits_nowhere(lab):
    node = await lab.node(labels={"zone": "a"})
    task = await lab.submit(requires={"zone": "b"})
    await lab.schedule()
    await lab.clock.move(lab.settings.scheduling.unplaceable_after)
    await node.heartbeat()
    await lab.components.cluster_manager.tick()
    await lab.schedule()
    assert await lab.status(task) == "failed"
    assert reason_of(await lab.end(task)) == {
        "code": "no_node_has_label",
        "message": "No node has the label zone=b, which it requires.",
        "details": {"missing": {"zone": "b"}, "nodes": 1},
    }


async def test_required_labels_are_stored_and_can_be_updated(lab):
    node = await lab.node(labels={"zone": "b"})
    task = await lab.submit(requires={"zone": "a"}, tier="basic")
    await lab.components.updater.update(lab.client, task, {"requires": {"zone": "b"}})
    ref = await lab.start(node, task)
    assert await node.report(ref)
    again = await lab.components.replayer.replay(lab.client, task)
    shape = await lab.conn.fetchval(
        "select requires from shapes s join live l on l.shape_id = s.id where l.id = $1", again
    )
    assert msgspec.json.decode(shape) == {"zone": "b"}


async def test_a_node_that_fails_tasks_is_chosen_last(lab):
    node = await lab.node(cpu=2)
    for _ in range(6):
        ref = await lab.run(node, max_attempts=1)
        assert await node.report(ref, Outcome.FAILED)
    other = await lab.node(cpu=64)
    await lab.clock.move(timedelta(seconds=5))
    for one in (node, other):
        await one.heartbeat()
    await lab.components.cluster_manager.tick()
    task = await lab.submit()
    await lab.schedule()
    assert await lab.run_on(other) == {task}
    await lab.components.cluster_manager.drain(other.id, draining=True)
    last = await lab.submit()
    await lab.schedule()
    assert await lab.run_on(node) == {last}


async def test_failures_of_long_ago_do_not_count(lab):
    node = await lab.node(cpu=2)
    for _ in range(6):
        await node.report(await lab.run(node, max_attempts=1), Outcome.FAILED)
    node = await lab.rejoin(node, cpu=2)
    assert await nodes.read_records(lab.conn, window=HOUR) == {node.id: (6, 0, 2)}
    await lab.clock.move(HOUR + timedelta(seconds=1))
    assert await nodes.read_records(lab.conn, window=HOUR) == {}
