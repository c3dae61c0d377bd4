"""Nodes that join, stop, are told what they have, and are taken away."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly import wire
from duly.errors import Conflict, Fenced, Invalid, Unauthenticated
from duly.model.task import Outcome
from duly.store import nodes
from duly.store.tenants import generate_key
from tests.server.lab import between_placing_and_leasing, capacity_of, reason_of

HOUR = timedelta(hours=1)


def asks(name="a", key=None, cpu=4.0):
    return wire.Join(name=name, key=key, capacity=wire.capacity(capacity_of(cpu, 4096)))


async def test_a_join_whose_answer_was_lost_is_repeated(lab):
    manager, key = lab.parts.cluster_manager, generate_key()
    token = await manager.create_token(HOUR)
    first = await manager.join(token, asks(key=key))
    again = await manager.join(token, asks(key=key))
    known = await manager.join(key, asks())
    assert first.node == again.node == known.node
    assert first.incarnation < again.incarnation < known.incarnation


async def test_joins_that_are_sent_twice_at_once_make_one_node(lab):
    manager, key = lab.parts.cluster_manager, generate_key()
    token = await manager.create_token(HOUR)
    joined = await asyncio.gather(*(manager.join(token, asks(key=key)) for _ in range(4)))
    assert len({one.node for one in joined}) == 1
    assert await lab.count("nodes") == 1
    assert await lab.count("incarnations where ended_at is null") == 1


async def test_a_token_admits_one_node_however_many_try_at_once(lab):
    manager = lab.parts.cluster_manager
    token = await manager.create_token(HOUR)
    requests = [asks(name=f"n{number}", key=generate_key()) for number in range(8)]
    joined = await asyncio.gather(
        *(manager.join(token, request) for request in requests), return_exceptions=True
    )
    refused = [one for one in joined if isinstance(one, Unauthenticated)]
    assert len(refused) == 7
    assert {"--uses" in one.message for one in refused} == {True}
    assert await lab.count("nodes") == 1


async def test_a_token_admits_as_many_nodes_as_it_was_made_for(lab):
    manager = lab.parts.cluster_manager
    token = await manager.create_token(HOUR, uses=2)
    for name in ("a", "b"):
        await manager.join(token, asks(name=name, key=generate_key()))
    with pytest.raises(Unauthenticated, match="has been used"):
        await manager.join(token, asks(name="c", key=generate_key()))
    unlimited = await manager.create_token(HOUR, uses=None)
    for name in ("c", "d", "e"):
        await manager.join(unlimited, asks(name=name, key=generate_key()))
    assert await lab.count("nodes") == 5


async def test_a_join_that_is_refused_uses_no_token_up(lab):
    manager = lab.parts.cluster_manager
    await manager.join(await manager.create_token(HOUR), asks(name="a", key=generate_key()))
    token = await manager.create_token(HOUR)
    with pytest.raises(Conflict, match="--name"):
        await manager.join(token, asks(name="a", key=generate_key()))
    with pytest.raises(Invalid):
        await manager.join(token, asks(name="b", key="short"))
    await manager.join(token, asks(name="b", key=generate_key()))


async def test_a_token_that_has_expired_repeats_no_join(lab):
    manager, key = lab.parts.cluster_manager, generate_key()
    token = await manager.create_token(HOUR)
    joined = await manager.join(token, asks(key=key))
    await lab.clock.move(HOUR)
    with pytest.raises(Unauthenticated, match="has expired"):
        await manager.join(token, asks(key=key))
    assert (await manager.join(key, asks())).node == joined.node


async def test_a_node_that_stops_is_given_no_more_work(lab):
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


async def test_a_placement_on_a_node_that_has_just_said_that_it_stops_is_no_lease(lab):
    node = await lab.node()
    task = await lab.submit()
    await between_placing_and_leasing(lab, node.heartbeat(stopping=True))
    assert await lab.status(task) == "waiting"


async def test_what_a_node_has_is_never_exceeded_once_it_was_said(lab):
    node = await lab.node(cpu=4)
    first = await lab.run(node, cpu=2)
    await lab.parts.cluster_manager.override_capacity(node.id, {"cpu_milli": 2500})
    second = await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.run_on(node) == {first.task}
    again = await lab.rejoin(node, cpu=8)
    await lab.sweep()
    await lab.schedule()
    assert await lab.run_on(again) == {first.task}
    await lab.parts.cluster_manager.override_capacity(node.id, {})
    await lab.schedule()
    assert await lab.run_on(again) == {first.task, second}


async def test_a_placement_by_what_a_node_had_before_is_no_lease(lab):
    node = await lab.node(cpu=4)
    task = await lab.submit(cpu=3)
    smaller = lab.parts.cluster_manager.override_capacity(node.id, {"cpu_milli": 2000})
    await between_placing_and_leasing(lab, smaller)
    assert await lab.status(task) == "waiting"


async def test_a_node_that_is_removed_is_fenced_at_once_and_its_tasks_go_to_another(lab):
    node = await lab.node()
    ref = await lab.run(node)
    other = await lab.node()
    await lab.parts.cluster_manager.remove(node.id)
    with pytest.raises(Fenced):
        await node.heartbeat(ref)
    with pytest.raises(Fenced):
        await node.poll(ref)
    await lab.sweep()
    assert await lab.attempts(ref.task) == [(1, "lost")]
    assert (await lab.start(other, ref.task)).attempt == 2
    assert not await node.report(ref)


async def test_a_node_that_was_removed_cannot_come_back_but_its_name_can(lab):
    manager, key = lab.parts.cluster_manager, generate_key()
    token = await manager.create_token(HOUR, uses=2)
    joined = await manager.join(token, asks(key=key))
    await manager.remove(joined.node)
    for secret in (key, token):
        with pytest.raises(Unauthenticated, match="has been removed"):
            await manager.join(secret, asks(key=key))
    with pytest.raises(Unauthenticated):
        await lab.parts.authenticator.authenticate_node(key)
    assert (await manager.join(token, asks(key=generate_key()))).node != joined.node


async def test_a_task_runs_only_where_the_labels_are_that_it_requires(lab):
    plain, fast = await lab.node(), await lab.node(labels={"disk": "ssd", "zone": "a"})
    tasks = [await lab.submit(requires={"disk": "ssd"}) for _ in range(3)]
    await lab.schedule()
    assert await lab.run_on(plain) == set()
    assert await lab.run_on(fast) == set(tasks)


async def test_a_task_whose_labels_no_node_has_is_ended_like_one_that_fits_nowhere(lab):
    node = await lab.node(labels={"zone": "a"})
    task = await lab.submit(requires={"zone": "b"})
    await lab.schedule()
    await lab.clock.move(lab.settings.scheduling.unplaceable_after)
    await node.heartbeat()
    await lab.parts.cluster_manager.tick()
    await lab.schedule()
    assert await lab.status(task) == "failed"
    assert reason_of(await lab.end(task)) == {
        "code": "no_node_has_label",
        "message": "Requires zone=b, which the only node does not have.",
        "details": {"missing": {"zone": "b"}, "nodes": 1},
    }


async def test_what_is_required_is_kept_and_can_be_changed(lab):
    node = await lab.node(labels={"zone": "b"})
    task = await lab.submit(requires={"zone": "a"}, tier="basic")
    await lab.parts.updater.update(lab.client, task, {"requires": {"zone": "b"}})
    ref = await lab.start(node, task)
    assert await node.report(ref)
    again = await lab.parts.replayer.replay(lab.client, task)
    shape = await lab.conn.fetchval(
        "select requires from shapes s join live l on l.shape_id = s.id where l.id = $1", again
    )
    assert msgspec.json.decode(shape) == {"zone": "b"}


async def test_a_node_that_fails_tasks_is_asked_after_the_others(lab):
    node = await lab.node(cpu=2)
    for _ in range(6):
        ref = await lab.run(node, max_attempts=1)
        assert await node.report(ref, Outcome.FAILED)
    other = await lab.node(cpu=64)
    await lab.clock.move(timedelta(seconds=5))
    for one in (node, other):
        await one.heartbeat()
    await lab.parts.cluster_manager.tick()
    task = await lab.submit()
    await lab.schedule()
    assert await lab.run_on(other) == {task}
    await lab.parts.cluster_manager.drain(other.id, draining=True)
    last = await lab.submit()
    await lab.schedule()
    assert await lab.run_on(node) == {last}


async def test_what_went_wrong_long_ago_is_forgiven(lab):
    node = await lab.node(cpu=2)
    for _ in range(6):
        await node.report(await lab.run(node, max_attempts=1), Outcome.FAILED)
    node = await lab.rejoin(node, cpu=2)
    assert await nodes.read_records(lab.conn, window=HOUR) == {node.id: (6, 0, 2)}
    await lab.clock.move(HOUR + timedelta(seconds=1))
    assert await nodes.read_records(lab.conn, window=HOUR) == {}
