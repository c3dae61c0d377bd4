"""Starts that no spawner has room for yet: they wait, and can be taken back."""

import errno
import os
import resource
import select
import signal
import socket
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from duly.agent.limits import cgroup_hierarchies
from duly.agent.limits.cgroup import Layout
from duly.agent.limits.cgroup_pool import CgroupPool
from duly.agent.supervision.spawner import WORKSPACE_READY
from duly.agent.supervision.spawner_handle import MAX_STARTS_UNDER_WAY
from duly.agent.supervision.spawner_pool import SpawnerPool
from duly.agent.supervision.supervisor import Supervisor
from duly.clock import monotonic
from duly.model.task import Outcome
from tests.agent.node import is_alive, running
from tests.agent.starting import closing_at_end, start_of_true


def test_starts_wait_until_their_spawner_has_caught_up():
    with closing_at_end() as spawner:
        for attempt in range(2 * MAX_STARTS_UNDER_WAY):
            spawner.add(start_of_true(attempt))
        first = spawner.pop_next()
        assert [start.attempt for start in first] == list(range(MAX_STARTS_UNDER_WAY))
        spawner.send_starts(first)
        assert spawner.pop_next() == []
        assert spawner.load() == 2 * MAX_STARTS_UNDER_WAY
        begun = []
        while not begun:
            assert select.select([spawner.connection.socket], [], [], 20)[0]
            begun = [attempt for what, attempt, *_ in spawner.receive() if what == "begun"]
        second = spawner.pop_next()
        assert [start.attempt for start in second] == [
            MAX_STARTS_UNDER_WAY + number for number in range(len(begun))
        ]
        spawner.send_starts(second)


def test_what_a_dead_spawner_had_not_begun_goes_before_what_waited():
    with closing_at_end() as spawner:
        os.kill(spawner.pid, signal.SIGSTOP)
        for attempt in range(MAX_STARTS_UNDER_WAY + 3):
            spawner.add(start_of_true(attempt))
        spawner.send_starts(spawner.pop_next())
        spawner.kill()
        assert spawner.clean_up() == []
        spawner.replace()
        again = spawner.pop_next()
        assert [start.attempt for start in again] == list(range(MAX_STARTS_UNDER_WAY))
        assert spawner.load() == 3


@pytest.mark.parametrize("verb", ["kill", "terminate"])
async def test_what_is_cancelled_before_a_spawner_has_room_for_it_never_begins(
    best_node, doorbell, verb
):
    await best_node.run("true")
    refs = [
        best_node.start("sh", "-c", f"echo {number} > {doorbell.path}; exec sleep 1000")
        for number in range(4 * MAX_STARTS_UNDER_WAY)
    ]
    # In one message with the starts, so that the supervisor has handed over nothing yet.
    best_node.command(verb, refs[-1])
    _, report = await best_node.end(refs[-1], Outcome.CANCELLED)
    assert (report.outcome, report.exit_code, report.ran) == (Outcome.CANCELLED, None, None)
    assert report.reason.message == "Cancelled before it started."
    for _ in refs[:-1]:
        assert int(await doorbell.ring()) < len(refs) - 1
    for ref in refs[:-1]:
        best_node.command("kill", ref)
    for ref in refs[:-1]:
        await best_node.end(ref)
    assert doorbell.rings() == 0


async def test_without_trust_nothing_begins_and_what_is_lost_meanwhile_never_does(doorbell):
    async with running("cgroup") as node:
        if not node.layout.can_freeze:
            pytest.skip("no freezer can be had here")
        await node.run("true")
        node.link.send("trust", monotonic())
        first, lost, kept = (
            node.start("sh", "-c", f"echo {name} > {doorbell.path}")
            for name in ("first", "lost", "kept")
        )
        node.command("kill", first)
        await node.end(first, Outcome.LOST)
        # So the supervisor has been round once since the lease was over.
        node.command("kill", lost)
        _, report = await node.end(lost, Outcome.LOST)
        assert (report.outcome, report.ran) == (Outcome.EXPIRED, None)
        node.link.send("trust", monotonic() + 1000)
        _, report = await node.end(kept)
        assert report.outcome is Outcome.SUCCEEDED
        assert doorbell.rings() == 1


@pytest.mark.parametrize("mode", ["uid", "shared"])
async def test_where_nothing_can_be_frozen_what_waits_is_given_back_without_trust(mode, doorbell):
    async with running(mode) as node:
        await node.run("true")
        node.link.send("trust", monotonic())
        refs = [node.start("sh", "-c", f"echo > {doorbell.path}") for _ in range(20)]
        for ref in refs:
            _, report = await node.end(ref, Outcome.LOST)
            assert (report.outcome, report.ran) == (Outcome.EXPIRED, None)
        assert doorbell.rings() == 0


def test_what_was_to_be_killed_does_not_begin_after_its_spawner_has_died_before_it_began():
    lock = os.open("/dev/null", os.O_RDONLY)
    ours, theirs = socket.socketpair()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    supervisor = Supervisor(theirs.detach(), Layout(), 10, files, lock)
    supervisor._start(
        {
            "id": 1,
            "tenant": 1,
            "begin": (["true"], {}, "/", WORKSPACE_READY, None, False),
            "disk": 0,
            "own_uid": None,
            "marker": "nobody",
            "limits": (0, 0, False),
            "spool": "/nowhere",
            "log_limit": 100,
        }
    )
    (attempt,) = supervisor._attempts.values()
    os.kill(attempt.spawner.pid, signal.SIGSTOP)
    supervisor._spawners.flush(may_begin=True)
    supervisor._kill(attempt)
    assert supervisor._events == []
    dead = attempt.spawner.connection.socket.fileno()
    attempt.spawner.kill()
    try:
        while not supervisor._events:
            supervisor._apply_results(supervisor._spawners.receive(dead))
        (event,) = supervisor._events
        assert (event[0], event[1]["id"], event[1]["never_begun"]) == ("exited", 1, True)
        assert supervisor._attempts == {}
    finally:
        supervisor._spawners.close()
        supervisor._agent.socket.close()
        supervisor._poll.close()
        for fd in (supervisor._wakeup_reader, supervisor._wakeup_writer, lock):
            os.close(fd)
        ours.close()


async def test_of_what_waits_for_a_spawner_nothing_is_left_when_the_agent_goes(doorbell):
    async with running("cgroup") as node:
        await node.run("true")
        for _ in range(4 * MAX_STARTS_UNDER_WAY):
            node.start("sh", "-c", f"echo $$ > {doorbell.path}; sleep 1000")
        begun = int(await doorbell.ring())
        await node.link.close()
        assert not is_alive(begun)
        left = [path.name for folder in node.layout.folders for path in Path(folder).glob("*")]
        assert left == []


def test_groups_are_for_what_a_spawner_begins_and_not_for_what_waits():
    with stopped_spawner() as (spawners, spawner, _):
        for attempt in range(3 * MAX_STARTS_UNDER_WAY):
            spawner.add(start_of_true(attempt))
        assert spawners.flush(may_begin=False) == []
        given = spawners.flush(may_begin=True)
        assert [result[:2] for result in given] == [
            ("grouped", attempt) for attempt in range(MAX_STARTS_UNDER_WAY)
        ]
        assert len({group.name for _, _, group in given}) == MAX_STARTS_UNDER_WAY
        assert spawners.flush(may_begin=True) == []


def test_all_that_get_no_group_fail_at_once(monkeypatch):
    def refuse(_limits):
        raise OSError(errno.ENOSPC, "no more groups")

    with stopped_spawner() as (spawners, spawner, groups):
        monkeypatch.setattr(groups, "take", refuse)
        for attempt in range(3 * MAX_STARTS_UNDER_WAY):
            spawner.add(start_of_true(attempt))
        assert spawners.flush(may_begin=True) == [
            ("failed", attempt, "fork", errno.ENOSPC) for attempt in range(3 * MAX_STARTS_UNDER_WAY)
        ]
        assert spawner.load() == 0


@contextmanager
def stopped_spawner():
    """Give the spawners of nobody, the line to the only one, which does nothing, and its groups."""
    name = f"duly-test-{uuid.uuid4().hex}"
    layout = cgroup_hierarchies.find(name, limit_processes=False)
    if not layout.folders:
        pytest.skip("no cgroup can be had here")
    lock = os.open("/dev/null", os.O_RDONLY)
    with select.epoll() as poll:
        groups = CgroupPool(layout, 10, poll)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        spawners = SpawnerPool(layout, groups, files, lock, poll, lambda *_: None)
        try:
            spawner = spawners.choose(1, 0)
            os.kill(spawner.pid, signal.SIGSTOP)
            yield spawners, spawner, groups
        finally:
            spawners.close()
            os.close(lock)
            cgroup_hierarchies.sweep(name)
