"""The pool of spawners: what a tenant does to its own reaches no other tenant."""

import asyncio
import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
from contextlib import contextmanager, suppress

from duly.agent.limits.cgroup import Layout
from duly.agent.supervision.boot import PR_SET_CHILD_SUBREAPER
from duly.agent.supervision.spawner import MAX_STARTS_PER_BATCH, WORKSPACE_READY
from duly.agent.supervision.spawner_pool import MAX_SPAWNERS, MAX_SPAWNERS_PER_KEY
from duly.agent.supervision.supervisor import Supervisor
from duly.model.task import Outcome
from tests.agent.node import is_alive, spawners


async def test_stopping_its_spawner_costs_no_other_tenant_an_attempt(node, doorbell):
    log = node.data / "log"
    log.touch()
    log.chmod(0o666)
    victims = []
    for number in range(8):
        attacker = node.start("sh", "-c", f"echo $PPID > {doorbell.path}", tenant=1)
        spawner = int(await doorbell.ring())
        others = range(10 * number, 10 * number + 10)
        victims += [node.start("sh", "-c", f"echo {n} >> {log}", tenant=2) for n in others]
        await asyncio.sleep(0)  # The commands leave; the spawner is stopped while they are obeyed.
        with suppress(ProcessLookupError):
            os.kill(spawner, signal.SIGSTOP)
            os.kill(spawner, signal.SIGCONT)
        await node.end(attacker)
    reports = [report for _, report in [await node.end(ref) for ref in victims]]
    assert {report.outcome for report in reports} == {Outcome.SUCCEEDED}
    assert sorted(map(int, log.read_text().split())) == list(range(80))


async def test_a_stopped_spawner_holds_up_no_other_tenant(node):
    await node.run("true", tenant=1)
    (stopped,) = spawners(node)
    await node.run("true", tenant=2)
    os.kill(node.supervisor, signal.SIGSTOP)
    os.kill(stopped, signal.SIGSTOP)
    waiting = node.start("true", tenant=1)
    os.kill(node.supervisor, signal.SIGCONT)
    assert (await node.run("true", tenant=2)).outcome is Outcome.SUCCEEDED
    _, report = await node.end(waiting)
    assert report.outcome is Outcome.SUCCEEDED
    assert not is_alive(stopped)


async def test_each_tenant_has_spawners_of_its_own(node, doorbell):
    parents = []
    for tenant in (1, 2, 1):
        await node.run("sh", "-c", f"echo $PPID > {doorbell.path}", tenant=tenant)
        parents.append(await doorbell.ring())
    first, other, again = parents
    assert first == again != other


async def test_a_spawner_that_is_unused_is_reset_and_serves_another_tenant(best_node, doorbell):
    lasting = best_node.start("sh", "-c", f"echo > {doorbell.path}; exec sleep 1000")
    await doorbell.ring()
    (busy,) = spawners(best_node)
    for tenant in range(2, MAX_SPAWNERS + 1):
        await best_node.run("true", tenant=tenant)
    before = set(spawners(best_node))
    assert len(before) == MAX_SPAWNERS
    for pid in before:
        os.setpriority(os.PRIO_PROCESS, pid, 5)
        subprocess.run(["ionice", "-c", "idle", "-p", str(pid)], check=True)
    script = f"echo $PPID $(ionice) $(nice) > {doorbell.path}"
    await best_node.run("sh", "-c", script, tenant=1000)
    parent, *priorities = (await doorbell.ring()).split()
    assert int(parent) in before - {busy}
    assert priorities == ["none:", "prio", "0", "0"]
    assert set(spawners(best_node)) == before
    best_node.command("kill", lasting)
    await best_node.end(lasting)


async def test_spawners_that_were_idle_for_longest_make_room_for_other_limits(best_node, doorbell):
    lasting = best_node.start("sh", "-c", f"echo > {doorbell.path}; sleep 1; exit 7")
    await doorbell.ring()
    for disk_mb in range(1, MAX_SPAWNERS + 4):
        report = await best_node.run("true", disk_mb=disk_mb)
        assert report.outcome is Outcome.SUCCEEDED
    async with asyncio.timeout(20):
        while len(spawners(best_node)) > MAX_SPAWNERS:
            await asyncio.sleep(0.01)
    # The spawner of the first one was among them. How its task ends is known all the same.
    _, report = await best_node.end(lasting)
    assert (report.outcome, report.exit_code) == (Outcome.FAILED, 7)


async def test_a_tenant_that_starts_much_at_once_has_two_spawners(best_node):
    refs = [best_node.start("true") for _ in range(4 * MAX_STARTS_PER_BATCH)]
    for ref in refs:
        await best_node.end(ref)
    assert len(spawners(best_node)) == MAX_SPAWNERS_PER_KEY


def test_how_the_orphan_of_a_dead_spawner_ended_is_known_even_if_it_is_reaped_first(tmp_path):
    os.mkfifo(tmp_path / "go")
    with lone_supervisor() as supervisor:
        supervisor._start(spec_of("sh", "-c", "read line < go; exit 7", cwd=str(tmp_path)))
        (attempt,) = supervisor._attempts.values()
        supervisor._spawners.flush(may_begin=True)
        while not attempt.pid:
            fd = attempt.spawner.connection.socket.fileno()
            assert select.select([fd], [], [], 20)[0]
            supervisor._apply_results(supervisor._spawners.receive(fd))
        attempt.spawner.kill()
        os.waitid(os.P_PID, attempt.spawner.pid, os.WEXITED | os.WNOWAIT)
        (tmp_path / "go").write_text("now\n")
        os.waitid(os.P_PID, attempt.pid, os.WEXITED | os.WNOWAIT)
        supervisor._reap()
        supervisor._reap()
        ((name, told),) = supervisor._events
        assert (name, told["code"], told["is_unknown"]) == ("exited", 7, False)


def spec_of(*command, cwd):
    return {
        "id": 1,
        "tenant": 1,
        "begin": (list(command), {"PATH": "/usr/bin:/bin"}, cwd, WORKSPACE_READY, None, False),
        "disk": 0,
        "own_uid": None,
        "marker": "nobody",
        "limits": (0, 0, False),
        "execution_cap": 60.0,
        "spool": "/nowhere",
        "log_limit": 100,
    }


@contextmanager
def lone_supervisor():
    """Give a supervisor in this process, which takes in orphans meanwhile as a supervisor does."""
    lock = os.open("/dev/null", os.O_RDONLY)
    ours, theirs = socket.socketpair()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    supervisor = Supervisor(theirs.detach(), Layout(), 10, files, lock)
    try:
        yield supervisor
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        supervisor._spawners.close()
        supervisor._agent.socket.close()
        supervisor._poll.close()
        for fd in (supervisor._wakeup_reader, supervisor._wakeup_writer, lock):
            os.close(fd)
        ours.close()
