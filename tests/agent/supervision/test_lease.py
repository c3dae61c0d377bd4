"""What the supervisor does by itself when its agent is silent, stopped or dead."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from duly.agent.leftovers import sweep
from duly.clock import monotonic
from duly.model.task import Outcome
from tests.agent.node import is_alive, running, spawners


def clock_of(wakeups):
    """Return a command that rings as long as it is allowed to run."""
    return f"echo $$ > {wakeups.path}; while :; do sleep 0.02; echo . > {wakeups.path}; done"


async def gone(pids):
    """Wait until none of these processes runs."""
    async with asyncio.timeout(10):
        while any(is_alive(pid) for pid in pids):
            await asyncio.sleep(0.01)


async def test_attempts_freeze_at_the_end_of_trust_and_go_on_when_it_returns(doorbell):
    async with running("cgroup") as node:
        if not node.layout.can_freeze:
            pytest.skip("no freezer can be had here")
        ref = node.start("sh", "-c", clock_of(doorbell))
        pid = int(await doorbell.ring())
        node.link.send("trust", monotonic())
        await frozen(node)
        doorbell.rings()
        await asyncio.sleep(0.2)
        assert doorbell.rings() == 0
        assert is_alive(pid)
        node.link.send("trust", monotonic() + 100)
        await doorbell.ring()
        node.link.send("trust", monotonic())
        await frozen(node)
        node.command("kill", ref)
        _, report = await node.end(ref, Outcome.LOST)
        assert report.outcome is Outcome.LOST


async def frozen(node):
    """Wait until every group of the node is frozen in which a task is."""
    async with asyncio.timeout(10):
        while not is_frozen(node):
            await asyncio.sleep(0.01)


def is_frozen(node):
    waiting = {str(pid) for pid in spawners(node)}
    states = [
        "frozen 1" in (group / "cgroup.events").read_text()
        for group in Path(node.layout.unified).iterdir()
        if group.is_dir() and set((group / "cgroup.procs").read_text().split()) - waiting
    ]
    return bool(states) and all(states)


async def test_without_a_freezer_attempts_die_at_the_end_of_trust(doorbell):
    async with running("shared") as node:
        ref = node.start("sh", "-c", clock_of(doorbell))
        pid = int(await doorbell.ring())
        node.link.send("trust", monotonic())
        _, report = await node.end(ref, Outcome.LOST)
        assert report.outcome is Outcome.LOST
        assert not is_alive(pid)


async def test_a_frozen_attempt_still_ends_at_its_cap(doorbell):
    async with running("cgroup") as node:
        if not node.layout.can_freeze:
            pytest.skip("no freezer can be had here")
        ref = node.start("sh", "-c", clock_of(doorbell), cap=1.5, grace=0.2)
        await doorbell.ring()
        node.link.send("trust", monotonic())
        _, report = await node.end(ref)
        assert report.outcome is Outcome.CAPPED


async def test_everything_dies_when_the_agent_hangs_up(node, doorbell):
    node.start("sh", "-c", f"setsid sh -c 'echo $$ > {doorbell.path}; sleep 1000' & sleep 1000")
    daemon = int(await doorbell.ring())
    supervisor = node.supervisor
    await node.link.close()
    assert not is_alive(daemon)
    assert not is_alive(supervisor)
    assert not any(Path(folder).exists() for folder in node.layout.folders)


async def test_a_signal_to_the_whole_service_does_not_end_the_supervisor(node):
    assert (await node.run("true")).outcome is Outcome.SUCCEEDED
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(node.supervisor, number)
    assert (await node.run("true")).outcome is Outcome.SUCCEEDED


async def test_the_death_of_the_supervisor_is_noticed_and_swept_up(node, doorbell):
    node.start("sh", "-c", f"setsid sh -c 'echo $$ > {doorbell.path}; sleep 1000' & sleep 1000")
    daemon = int(await doorbell.ring())
    os.kill(node.supervisor, signal.SIGKILL)
    async with asyncio.timeout(10):
        await node.link.lost.wait()
    sweep(node.mark, node.work, node.data / "spool", node.users)
    assert not is_alive(daemon)
    assert list(node.work.iterdir()) == []
