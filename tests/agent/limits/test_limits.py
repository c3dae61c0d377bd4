"""What a task was given is what it gets: memory, disk space and processor time."""

import asyncio

import pytest

from duly.agent.limits.disk_watch import DiskWatch
from duly.model.task import Outcome
from tests.agent.node import running

HOG = "python3 -c 'import time; held = bytearray(300 * 2**20); time.sleep(10)'"
SPIN = ("taskset", "-c", "0", "sh", "-c", "while :; do :; done")
WRITE_LONG_FILE = """
import sys
try:
    open("big", "wb").write(bytes(3 * 2**20))
except OSError as error:
    print(error.strerror)
sys.exit(int(sys.argv[1]))
"""


async def test_a_task_over_its_memory_is_ended_with_all_that_it_started(node, doorbell):
    # A shell whose child is killed goes on with what comes next.
    script = f"{HOG}; echo survived > {doorbell.path}; sleep 1000"
    report = await node.run("sh", "-c", script, memory_mb=64)
    assert (report.outcome, report.reason.code) == (Outcome.OVERUSED, "memory_exceeded")
    assert report.reason.details["memory_mb"] == 64


async def test_memory_that_processes_share_counts_once(node):
    # Four processes with the same 60 MB: 240 MB, if each is counted as if it were alone.
    script = (
        "import os, time\n"
        "held = bytearray(os.urandom(60 * 2**20))\n"
        "children = [os.fork() for _ in range(2)]\n"
        "time.sleep(2.5)\n"
    )
    report = await node.run("python3", "-c", script, memory_mb=160)
    assert report.outcome is Outcome.SUCCEEDED
    assert report.usage.peak_memory_mb > 50


async def test_many_small_files_are_more_than_the_disk_space_too(node):
    script = "for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/urandom > f$i; done"
    report = await node.run("sh", "-c", script, disk_mb=4)
    assert (report.outcome, report.reason.code) == (Outcome.OVERUSED, "disk_exceeded")
    assert report.reason.message.endswith("MiB of disk, more than its 4 MiB.")
    fits = await node.run("sh", "-c", script, disk_mb=8)
    assert fits.outcome is Outcome.SUCCEEDED


async def test_a_task_is_ended_as_soon_as_its_folder_holds_too_much(node, doorbell):
    def end(number, usage):
        node.attempts.by_id(number).disk_usage = usage
        node.link.send("kill", number)

    watch = DiskWatch(node.attempts.folders, end)
    write = "for i in 1 2 3; do head -c 2000000 /dev/urandom > f$i; done"
    over = node.start("sh", "-c", f"{write}; echo > {doorbell.path}; sleep 1000", disk_mb=4)
    within = node.start("sh", "-c", f"{write}; echo > {doorbell.path}; sleep 1000", disk_mb=8)
    await doorbell.ring()
    await doorbell.ring()
    await watch.measure_due()
    await watch.measure_due()
    _, report = await node.end(over)
    assert (report.outcome, report.reason.code) == (Outcome.OVERUSED, "disk_exceeded")
    node.command("kill", within)
    _, report = await node.end(within, Outcome.CANCELLED)
    assert report.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("code", [0, 1])
async def test_a_task_that_hit_the_limit_of_a_file_says_so_whatever_its_exit_code(best_node, code):
    report = await best_node.run("python3", "-c", WRITE_LONG_FILE, str(code), disk_mb=2)
    assert report.tail == b"File too large\n"
    assert (report.outcome, report.reason.code) == (Outcome.OVERUSED, "disk_exceeded")
    assert report.reason.message == "Wrote a file larger than its 2 MiB of disk."
    assert report.exit_code == code


async def test_processors_are_shared_by_what_was_given():
    async with running("cgroup") as node:
        if not node.layout.shares_cpu:
            pytest.skip("no cpu controller can be had here")
        shares = [(500, node.start(*SPIN, cpu_milli=500, cap=3.0))]
        shares.append((1500, node.start(*SPIN, cpu_milli=1500, cap=3.0)))
        used = {cpu: (await node.end(ref))[1].usage.cpu_seconds for cpu, ref in shares}
        assert used[1500] / used[500] == pytest.approx(3, rel=0.35)


async def test_a_cap_on_cpu_holds_while_processors_are_idle():
    async with running("cgroup") as node:
        if not node.layout.shares_cpu:
            pytest.skip("no cpu controller can be had here")
        capped = node.start(*SPIN, cpu_milli=200, cpu_quota=True, cap=2.0)
        _, report = await node.end(capped)
        assert report.usage.cpu_seconds < 0.2 * 2.0 + 0.15


async def test_many_attempts_are_measured_without_ending_any(best_node):
    ended = []
    watch = DiskWatch(best_node.attempts.folders, lambda *over: ended.append(over))
    refs = [best_node.start("sleep", "1000", disk_mb=1) for _ in range(50)]
    async with asyncio.timeout(20):
        await watch.measure_due()
        await watch.measure_due()
    assert ended == []
    for ref in refs:
        best_node.command("kill", ref)
        await best_node.end(ref)
