"""How calls end that must: cancelled, capped, killed, crashed, and what becomes of the others."""

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from duly.agent.pool import messages
from duly.clock import monotonic
from duly.errors import ConfigError
from duly.model.task import Outcome
from tests.agent.node import is_alive
from tests.agent.pool.lab import running


@pytest.fixture(params=[{}, {"threads": 4, "concurrency": 4}], ids=["single", "several"])
async def lab(request):
    async with running(**request.param) as lab:
        yield lab


@pytest.fixture
async def single():
    async with running() as lab:
        yield lab


@pytest.mark.parametrize("function", ["sleep", "sleep_async"])
async def test_a_cancelled_call_is_interrupted_where_it_is(single, doorbell, function):
    ref = single.start(function, 60, str(doorbell.path), grace=30.0)
    process = int(await doorbell.ring())
    began = monotonic()
    report = await single.cancel(ref)
    assert (report.outcome, report.reason.code) == (Outcome.CANCELLED, "cancelled")
    assert monotonic() - began < 5
    assert await single.value("pid") == process
    if function == "sleep":
        assert report.tail == b"cleaned up\n"


async def test_a_busy_thread_is_interrupted_at_its_next_instruction(lab, doorbell):
    ref = lab.start("compute", str(doorbell.path), grace=30.0)
    process = int(await doorbell.ring())
    assert (await lab.cancel(ref)).outcome is Outcome.CANCELLED
    assert await lab.value("pid") == process


async def test_a_coroutine_is_cancelled_and_its_neighbors_are_not(doorbell):
    async with running(concurrency=4) as lab:
        other = lab.start("sleep_async", 0.5)
        ref = lab.start("sleep_async", 60, str(doorbell.path), grace=30.0)
        await doorbell.ring()
        assert (await lab.cancel(ref)).outcome is Outcome.CANCELLED
        _, report = await lab.end(other)
        assert report.outcome is Outcome.SUCCEEDED


async def test_a_call_is_interrupted_at_its_cap(lab, doorbell):
    name = "sleep" if lab.pool.options.lanes == 1 else "sleep_async"
    end, report = await lab.end(lab.start(name, 60, cap=0.3, grace=30.0))
    assert (report.outcome, report.reason.code) == (Outcome.CAPPED, "execution_cap_exceeded")
    assert 0.3 <= end.ran < 2
    assert await lab.value("add", 1, 1) == 2


async def test_the_cap_counts_from_the_begin_and_not_from_the_assignment(single):
    first, second = single.start("sleep", 0.15, cap=60.0), single.start("sleep", 0.2, cap=0.3)
    for ref in (first, second):
        _, report = await single.end(ref)
        assert report.outcome is Outcome.SUCCEEDED


async def test_a_function_that_ignores_its_interruption_is_killed_and_replaced(lab, doorbell):
    ref = lab.start("ignore_interruption", str(doorbell.path), cap=0.2, grace=0.2)
    process = int(await doorbell.ring())
    _, report = await lab.end(ref)
    assert (report.outcome, report.reason.code) == (Outcome.CAPPED, "execution_cap_exceeded")
    assert await lab.value("pid") != process
    assert not is_alive(process)


async def test_neighbors_of_a_killed_call_are_preempted(doorbell):
    async with running(threads=2, concurrency=2) as lab:
        neighbor = lab.start("sleep_async", 60, str(doorbell.path))
        await doorbell.ring()
        ref = lab.start("ignore_interruption", str(doorbell.path), cap=0.2, grace=0.2)
        _, report = await lab.end(ref)
        assert report.outcome is Outcome.CAPPED
        _, report = await lab.end(neighbor)
        assert (report.outcome, report.reason.code) == (Outcome.PREEMPTED, "neighbor_killed")


async def test_a_killed_call_takes_its_process_along(single, doorbell):
    ref = single.start("sleep", 60, str(doorbell.path))
    process = int(await doorbell.ring())
    single.executor.kill(ref)
    _, report = await single.end(ref, Outcome.LOST)
    assert report.outcome is Outcome.LOST
    assert not is_alive(process)


async def test_a_call_that_waits_is_withdrawn_without_harm(single, doorbell):
    running_ref = single.start("sleep", 0.5, str(doorbell.path))
    waiting = [single.start("add", 1, 1) for _ in range(3)]
    process = int(await doorbell.ring())
    single.executor.kill(waiting[0])
    single.executor.terminate(waiting[1])
    for ref in waiting[:2]:
        end, _ = await single.end(ref)
        assert end.never_begun
    for ref in (running_ref, waiting[2]):
        _, report = await single.end(ref)
        assert report.outcome in (Outcome.SUCCEEDED, Outcome.EXPIRED)
    assert await single.value("pid") == process


@pytest.mark.parametrize("code", [0, 3])
async def test_an_exit_of_the_process_is_told_with_its_code(lab, code):
    process = await lab.value("pid")
    report = await lab.run("exit_process", code)
    assert (report.outcome, report.reason.code) == (Outcome.FAILED, "process_died")
    assert report.reason.message == f"Its process exited with code {code}."
    assert await lab.value("pid") != process


async def test_a_crash_is_told_with_its_signal(lab):
    report = await lab.run("crash")
    assert report.reason.code == "process_died"
    assert report.reason.message == "Its process was killed by SIGSEGV."
    assert report.exit_code == 128 + signal.SIGSEGV
    assert await lab.value("add", 1, 1) == 2


async def test_the_output_of_a_call_is_kept_when_its_process_dies(single):
    report = await single.run("exit_process", 3)
    assert report.tail == b"going\n"


async def test_what_had_not_begun_in_a_process_that_dies_goes_to_another(
    single, doorbell, tmp_path
):
    ref = single.start("sleep", 60, str(doorbell.path))
    others = [single.start("record", str(tmp_path / "log"), str(n)) for n in range(5)]
    process = int(await doorbell.ring())
    os.kill(process, signal.SIGKILL)
    _, report = await single.end(ref)
    assert report.reason.message == "Its process was killed by SIGKILL."
    for other in others:
        _, report = await single.end(other)
        assert report.outcome is Outcome.SUCCEEDED
    assert sorted((tmp_path / "log").read_text().split()) == list("01234")


async def test_memory_beyond_the_limit_ends_the_process(needs_memory_controller):
    async with running(cgroups=True, memory_mb=128) as lab:
        report = await lab.run("use_memory", 400)
        assert (report.outcome, report.reason.code) == (Outcome.OVERUSED, "memory_exceeded")
        assert await lab.value("use_memory", 10) == 10


async def test_memory_beyond_the_limit_is_found_without_cgroups_too():
    async with running(memory_mb=128) as lab:
        report = await lab.run("sleep_with_memory", 400)
        assert (report.outcome, report.reason.code) == (Outcome.OVERUSED, "memory_exceeded")


async def test_work_behind_a_long_call_goes_to_another_process(doorbell):
    async with running(processes=2) as lab:
        ref = lab.start("sleep", 60, str(doorbell.path))
        await doorbell.ring()
        others = [lab.start("add", n, 0) for n in range(20)]
        for other in others:
            _, report = await lab.end(other)
            assert report.outcome is Outcome.SUCCEEDED
        await lab.cancel(ref)


async def test_work_that_no_process_can_begin_soon_is_handed_back(single, doorbell):
    ref = single.start("sleep", 60, str(doorbell.path))
    await doorbell.ring()
    began = monotonic()
    others = [single.start("add", n, 0) for n in range(20)]
    for other in others:
        end, _ = await single.end(other)
        assert end.never_begun
    assert 0.2 <= monotonic() - began < 5
    assert single.executor.offer() == 1
    await single.cancel(ref)


async def test_a_process_is_replaced_after_its_last_task():
    async with running(max_tasks=3) as lab:
        pids = [await lab.value("pid") for _ in range(7)]
        assert len(set(pids)) == 3
        assert pids == sorted(pids, key=pids.index)
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]


async def test_a_process_is_replaced_once_it_is_too_large():
    async with running(max_memory_mb=100) as lab:
        process = await lab.value("pid")
        assert await lab.value("pid") == process
        await lab.value("use_memory", 150)
        assert await lab.value("pid") != process


async def test_an_application_that_cannot_be_imported_is_told_plainly():
    with pytest.raises(ConfigError, match=r"no module.*nowhere"):
        async with running(app="nowhere.tasks:app"):
            pass


async def test_nobody_else_can_connect_to_the_pool(single):
    reader, writer = await asyncio.open_unix_connection(str(single.pool._work / "socket"))
    writer.write(messages.encode([messages.Ready("wrong", ["x"], [])]))
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    assert single.pool.functions != {"x"}
