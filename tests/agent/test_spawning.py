"""How tasks are begun, and what becomes of them when a process that begins them dies."""

import asyncio
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

from duly.agent import hierarchies
from duly.agent.cgroup import Layout
from duly.agent.groups import Groups
from duly.agent.spawner import MADE, UNDER_WAY
from duly.agent.spawners import Spawners
from duly.agent.starter import (
    MOST_FAILURES,
    MOST_UNDER_WAY,
    STARTER_DIED,
    Start,
    Starter,
)
from duly.agent.supervisor import Supervisor
from duly.agent.tree import Tree
from duly.clock import monotonic
from duly.model.task import Outcome
from tests.agent.node import is_alive, running, spawners


async def replaced(node, dead):
    """Wait until a node has as many spawners as before, and none of `dead`."""
    async with asyncio.timeout(20):
        while len(alive := spawners(node)) != len(dead) or set(alive) & set(dead):
            await asyncio.sleep(0.01)


async def resting(node):
    """Wait until every spawner waits for orders, and return them.

    A task may run, and ring, before its spawner has noted that: one that dies in between gives
    its start up, as `Starter.bury` says.
    """
    async with asyncio.timeout(20):
        while not all(_is_resting(pid) for pid in spawners(node)):
            await asyncio.sleep(0.001)
    return spawners(node)


def _is_resting(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


async def test_what_one_attempt_was_allowed_is_not_left_to_the_next(node):
    script = "ulimit -f; ulimit -Hf; nice; umask; cat /proc/self/oom_score_adj"
    limited = await node.run("sh", "-c", script, disk_mb=2)
    assert limited.tail == b"4096\n4096\n0\n0022\n0\n"
    missing = await node.run("no-such-program-here", disk_mb=1)
    assert missing.exit_code == 127
    free = await node.run("sh", "-c", script)
    assert free.tail == b"unlimited\nunlimited\n0\n0022\n0\n"


async def test_every_attempt_is_in_a_group_of_its_own_from_the_beginning(doorbell):
    async with running("cgroup") as node:
        if not node.layout.folders:
            pytest.skip("no cgroup can be had here")
        script = f"cat /proc/self/cgroup > {doorbell.path}; sleep 1000"
        refs = [node.start("sh", "-c", script) for _ in range(4)]
        lines = 4 * len(Path("/proc/self/cgroup").read_text().splitlines())
        paths = [(await doorbell.ring()).split(":", 2)[2] for _ in range(lines)]
        ours = [path for path in paths if node.mark in path]
        assert len(ours) == 4 * len(node.layout.folders)
        assert len({Path(path).name for path in ours}) == 4
        # Each spawner waits in a group that is nobody's yet.
        for spawner in spawners(node):
            inside = Path(f"/proc/{spawner}/cgroup").read_text().splitlines()
            own = [line.split(":", 2)[2] for line in inside if node.mark in line]
            assert len(own) == len(node.layout.folders)
            assert not set(own) & set(ours)
        for ref in refs:
            node.command("kill", ref)
            await node.end(ref)


async def test_the_next_attempt_begins_where_its_spawner_waits(doorbell):
    async with running("cgroup") as node:
        if not node.layout.folders:
            pytest.skip("no cgroup can be had here")
        await node.run("true")
        (spawner,) = spawners(node)
        for memory_mb, is_there in ((256, True), (256, True), (512, False), (256, True)):
            waits_in = groups_of(spawner, node)
            script = f"echo $(cat /proc/self/cgroup) > {doorbell.path}"
            await node.run("sh", "-c", script, memory_mb=memory_mb)
            seen = {entry.split(":", 2)[2] for entry in (await doorbell.ring()).split()}
            assert (waits_in <= seen) is is_there
            assert groups_of(spawner, node).isdisjoint(seen)


def groups_of(pid, node):
    """Return the groups of a node in which a process is."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return {line.split(":", 2)[2] for line in lines if node.mark in line}


async def test_attempts_outlive_the_spawner_that_began_them(node, doorbell):
    refs = [
        node.start("sh", "-c", f"echo $$ > {doorbell.path}; echo early; sleep 0.5; exit {code}")
        for code in range(4)
    ]
    for _ in refs:
        await doorbell.ring()
    dead = await resting(node)
    for spawner in dead:
        os.kill(spawner, signal.SIGKILL)
    for code, ref in enumerate(refs):
        _, report = await node.end(ref)
        assert (report.exit_code, report.tail) == (code, b"early\n")
    await replaced(node, dead)
    assert (await node.run("true")).outcome is Outcome.SUCCEEDED


async def test_an_attempt_whose_spawner_died_can_still_be_stopped(node, doorbell):
    script = (
        f"trap 'echo stopped; exit 7' TERM; echo > {doorbell.path}; while :; do sleep 0.01; done"
    )
    ref = node.start("sh", "-c", script, grace=20)
    await doorbell.ring()
    dead = await resting(node)
    for spawner in dead:
        os.kill(spawner, signal.SIGKILL)
    await replaced(node, dead)
    node.command("terminate", ref)
    _, report = await node.end(ref, Outcome.CANCELLED)
    assert (report.outcome, report.exit_code) == (Outcome.CANCELLED, 7)


async def test_a_spawner_that_is_stopped_is_replaced(node):
    await node.run("true")
    dead = spawners(node)
    for spawner in dead:
        os.kill(spawner, signal.SIGSTOP)
    await replaced(node, dead)
    assert (await node.run("true")).outcome is Outcome.SUCCEEDED


async def test_what_dying_spawners_had_not_begun_is_begun_once_by_others(best_node):
    await best_node.run("true")
    log = best_node.data / "log"
    log.touch()
    log.chmod(0o666)
    refs = [best_node.start("sh", "-c", f"echo {n} >> {log}") for n in range(100)]
    ends = asyncio.gather(*(best_node.end(ref) for ref in refs))
    for _ in range(4):
        while not (alive := spawners(best_node)):
            await asyncio.sleep(0.001)
        os.kill(alive[0], signal.SIGKILL)
        await asyncio.sleep(0.01)
    reports = [report for _, report in await ends]
    ran = log.read_text().split()
    assert len(ran) == len(set(ran))
    failed = [report for report in reports if report.outcome is not Outcome.SUCCEEDED]
    # Of each that died, the one start that it was in the middle of, and ends that it had just
    # heard of and could not tell: those have run.
    halfway = [report for report in failed if "(start)" in report.reason.message]
    assert len(halfway) <= 4
    assert {report.reason.code for report in failed} <= {"not_prepared"}
    assert len(ran) >= len(refs) - len(halfway)


def test_tasks_that_kill_their_spawner_cost_no_more_than_themselves():
    with closing_at_end() as starter:
        for attempt in range(3 * MOST_FAILURES):
            os.kill(starter.pid, signal.SIGKILL)
            starter.add(start_of_true(attempt))
            starter.hand_over(starter.take_next())
            starter._board[attempt] = UNDER_WAY  # as it stands there when a task is that quick
            assert starter.bury() == [("failed", attempt, *STARTER_DIED)]
            starter.replace()


def start_of_true(attempt):
    begin = (["true"], {}, "/", MADE, None, False)
    return Start(attempt, 0, begin, os.open("/dev/null", os.O_WRONLY))


def test_starts_wait_until_their_spawner_has_caught_up():
    with closing_at_end() as starter:
        for attempt in range(2 * MOST_UNDER_WAY):
            starter.add(start_of_true(attempt))
        first = starter.take_next()
        assert [start.attempt for start in first] == list(range(MOST_UNDER_WAY))
        starter.hand_over(first)
        assert starter.take_next() == []
        assert starter.load() == 2 * MOST_UNDER_WAY
        begun = []
        while not begun:
            assert select.select([starter.frames.socket], [], [], 20)[0]
            begun = [attempt for what, attempt, *_ in starter.hear() if what == "begun"]
        second = starter.take_next()
        assert [start.attempt for start in second] == [
            MOST_UNDER_WAY + number for number in range(len(begun))
        ]
        starter.hand_over(second)


def test_what_a_dead_spawner_had_not_begun_goes_before_what_waited():
    with closing_at_end() as starter:
        os.kill(starter.pid, signal.SIGSTOP)
        for attempt in range(MOST_UNDER_WAY + 3):
            starter.add(start_of_true(attempt))
        starter.hand_over(starter.take_next())
        starter.kill()
        assert starter.bury() == []
        starter.replace()
        again = starter.take_next()
        assert [start.attempt for start in again] == list(range(MOST_UNDER_WAY))
        assert starter.load() == 3


@pytest.mark.parametrize("verb", ["kill", "terminate"])
async def test_what_is_cancelled_before_a_spawner_has_room_for_it_never_begins(
    best_node, doorbell, verb
):
    await best_node.run("true")
    refs = [
        best_node.start("sh", "-c", f"echo {number} > {doorbell.path}; exec sleep 1000")
        for number in range(4 * MOST_UNDER_WAY)
    ]
    # In one message with the starts, so that the supervisor has handed over nothing yet.
    best_node.command(verb, refs[-1])
    _, report = await best_node.end(refs[-1], Outcome.CANCELLED)
    assert (report.outcome, report.exit_code, report.ran) == (Outcome.CANCELLED, None, None)
    assert report.reason.message == "Cancelled before its node began it."
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
            "begin": (["true"], {}, "/", MADE, None, False),
            "disk": 0,
            "own_uid": None,
            "marker": "nobody",
            "memory": 0,
            "spool": "/nowhere",
            "log_limit": 100,
        }
    )
    (attempt,) = supervisor._attempts.values()
    os.kill(attempt.starter.pid, signal.SIGSTOP)
    supervisor._spawners.flush(may_begin=True)
    supervisor._kill(attempt)
    assert supervisor._events == []
    dead = attempt.starter.frames.socket.fileno()
    attempt.starter.kill()
    try:
        while not supervisor._events:
            supervisor._take_in(supervisor._spawners.hear(dead))
        (event,) = supervisor._events
        assert (event[0], event[1]["id"], event[1]["never_begun"]) == ("exited", 1, True)
        assert supervisor._attempts == {}
    finally:
        supervisor._spawners.close()
        supervisor._agent.socket.close()
        supervisor._poll.close()
        for fd in (supervisor._woken, supervisor._wake, lock):
            os.close(fd)
        ours.close()


async def test_of_what_waits_for_a_spawner_nothing_is_left_when_the_agent_goes(doorbell):
    async with running("cgroup") as node:
        await node.run("true")
        for _ in range(4 * MOST_UNDER_WAY):
            node.start("sh", "-c", f"echo $$ > {doorbell.path}; sleep 1000")
        begun = int(await doorbell.ring())
        await node.link.close()
        assert not is_alive(begun)
        left = [path.name for folder in node.layout.folders for path in Path(folder).glob("*")]
        assert left == []


def test_groups_are_for_what_a_spawner_begins_and_not_for_what_waits():
    with stopped_spawner() as (spawners, starter, _):
        for attempt in range(3 * MOST_UNDER_WAY):
            starter.add(start_of_true(attempt))
        assert spawners.flush(may_begin=False) == []
        given = spawners.flush(may_begin=True)
        assert [result[:2] for result in given] == [
            ("enclosed", attempt) for attempt in range(MOST_UNDER_WAY)
        ]
        assert len({group.name for _, _, group in given}) == MOST_UNDER_WAY
        assert spawners.flush(may_begin=True) == []


def test_all_that_get_no_group_fail_at_once(monkeypatch):
    def refuse(_memory):
        raise OSError(errno.ENOSPC, "no more groups")

    with stopped_spawner() as (spawners, starter, groups):
        monkeypatch.setattr(groups, "take", refuse)
        for attempt in range(3 * MOST_UNDER_WAY):
            starter.add(start_of_true(attempt))
        assert spawners.flush(may_begin=True) == [
            ("failed", attempt, "fork", errno.ENOSPC) for attempt in range(3 * MOST_UNDER_WAY)
        ]
        assert starter.load() == 0


@contextmanager
def stopped_spawner():
    """Give the spawners of nobody, the line to the only one, which does nothing, and its groups."""
    name = f"duly-test-{uuid.uuid4().hex}"
    layout = hierarchies.find(name, limit_processes=False)
    if not layout.folders:
        pytest.skip("no cgroup can be had here")
    lock = os.open("/dev/null", os.O_RDONLY)
    groups = Groups(layout, processes=10)
    with select.epoll() as poll:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        spawners = Spawners(layout, groups, files, lock, poll, lambda *_: None)
        try:
            starter = spawners.choose(0)
            os.kill(starter.pid, signal.SIGSTOP)
            yield spawners, starter, groups
        finally:
            spawners.close()
            os.close(lock)
            hierarchies.sweep(name)


async def test_a_task_finds_every_signal_as_it_is_by_default(node):
    report = await node.run("cat", "/proc/self/status")
    masks = dict(line.split(":\t") for line in report.tail.decode().splitlines() if "\t" in line)
    # Two of them are the C library's own.
    kept = 1 << 31 | 1 << 32
    assert [int(masks[name], 16) & ~kept for name in ("SigBlk", "SigIgn", "SigCgt")] == [0, 0, 0]


def test_spawners_that_never_come_to_a_start_are_given_up():
    with closing_at_end() as starter, pytest.raises(RuntimeError, match="no spawner"):
        for _ in range(MOST_FAILURES + 1):
            os.kill(starter.pid, signal.SIGKILL)
            assert starter.bury() == []
            starter.replace()


@contextmanager
def closing_at_end():
    lock = os.open("/dev/null", os.O_RDONLY)
    starter = Starter([], resource.getrlimit(resource.RLIMIT_NOFILE), 0, lock)
    try:
        yield starter
    finally:
        starter.frames.socket.close()
        if not starter.is_reaped:
            starter.kill()
            os.waitpid(starter.pid, 0)
        os.close(lock)


async def test_no_spawner_outlives_its_supervisor(node):
    await node.run("true")
    left = spawners(node)
    assert left
    os.kill(node.supervisor, signal.SIGKILL)
    await node.link.close()
    assert not any(is_alive(pid) for pid in left)


async def test_a_spawner_keeps_no_user_of_a_task(node):
    await node.run("true")
    for spawner in spawners(node):
        status = Path(f"/proc/{spawner}/status").read_text().splitlines()
        uids = next(line for line in status if line.startswith("Uid:")).split()[1:]
        assert set(uids) == {str(os.geteuid())}


def test_nothing_belongs_to_an_attempt_that_has_not_begun():
    assert Tree("DULY_RESULT=/nowhere/at/all/", None).is_empty()
