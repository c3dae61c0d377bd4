"""How tasks are begun, and what becomes of them when a process that begins them dies."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from duly.agent.supervision.process_tree import ProcessTree
from duly.agent.supervision.spawner import START_UNDER_WAY
from duly.agent.supervision.spawner_handle import MAX_CONSECUTIVE_DEATHS
from duly.model.task import Outcome
from tests.agent.node import is_alive, running, spawners
from tests.agent.starting import closing_at_end, start_of_true


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
    unknown = [report for report in reports if report.outcome is not Outcome.SUCCEEDED]
    # Of each that died, the one start that it was in the middle of, and ends that it had just
    # heard of and could not tell: those have run.
    assert {(report.outcome, report.reason.code) for report in unknown} <= {
        (Outcome.LOST, "outcome_unknown")
    }
    assert len(ran) >= len(refs) - 4


def test_tasks_that_kill_their_spawner_cost_no_more_than_themselves():
    with closing_at_end() as spawner:
        for attempt in range(3 * MAX_CONSECUTIVE_DEATHS):
            os.kill(spawner.pid, signal.SIGKILL)
            spawner.add(start_of_true(attempt))
            spawner.send_starts(spawner.pop_next())
            spawner._start_states[attempt] = (
                START_UNDER_WAY  # as it stands there when a task is that quick
            )
            assert spawner.clean_up() == [("unknown", attempt)]
            spawner.replace()


async def test_a_task_finds_every_signal_as_it_is_by_default(node):
    report = await node.run("cat", "/proc/self/status")
    masks = dict(line.split(":\t") for line in report.tail.decode().splitlines() if "\t" in line)
    # Two of them are the C library's own.
    kept = 1 << 31 | 1 << 32
    assert [int(masks[name], 16) & ~kept for name in ("SigBlk", "SigIgn", "SigCgt")] == [0, 0, 0]


def test_spawners_that_never_come_to_a_start_are_given_up():
    with closing_at_end() as spawner, pytest.raises(RuntimeError, match="no spawner"):
        for _ in range(MAX_CONSECUTIVE_DEATHS + 1):
            os.kill(spawner.pid, signal.SIGKILL)
            assert spawner.clean_up() == []
            spawner.replace()


async def test_no_spawner_outlives_its_supervisor(node):
    await node.run("true")
    left = spawners(node)
    assert left
    os.kill(node.supervisor, signal.SIGKILL)
    await node.link.close()
    assert not any(is_alive(pid) for pid in left)


async def test_a_spawner_keeps_no_user_of_a_task(node):
    await node.run("true")
    found = spawners(node)
    assert found
    for spawner in found:
        status = Path(f"/proc/{spawner}/status").read_text().splitlines()
        uids = next(line for line in status if line.startswith("Uid:")).split()[1:]
        assert set(uids) == {str(os.geteuid())}


def test_nothing_belongs_to_an_attempt_that_has_not_begun():
    assert ProcessTree("DULY_RESULT=/nowhere/at/all/", None).is_empty()
