"""Calls of functions in warm processes: results, failures, output."""

import asyncio

import pytest

from duly.model.progress import Progress
from duly.model.task import Outcome
from tests.agent.pool.lab import running


@pytest.fixture(params=[{}, {"threads": 4, "concurrency": 4}], ids=["single", "several"])
async def lab(request):
    async with running(**request.param) as lab:
        yield lab


async def test_a_function_returns_its_result(lab):
    assert await lab.value("add", 2, b=3) == 5
    assert await lab.value("add_async", 2, 3) == 5


async def test_an_alias_is_known_too(lab):
    assert await lab.value("sample:plus", 2, 3) == 5


async def test_startup_hooks_run_once_per_process(lab):
    assert [await lab.value("started") for _ in range(3)] == [1, 1, 1]


async def test_many_calls_are_all_answered(lab):
    refs = [lab.start("add", number, 1) for number in range(500)]
    ends = [await lab.end(ref) for ref in refs]
    assert [report.result for _, report in ends] == [str(n + 1).encode() for n in range(500)]


async def test_an_exception_is_a_failure_with_its_traceback(lab):
    report = await lab.run("fail", "bad height")
    assert report.outcome is Outcome.FAILED
    assert report.exit_code is None
    assert report.reason.code == "exception"
    assert report.reason.message == "ValueError: bad height"
    assert report.reason.details["type"] == "builtins.ValueError"
    traceback = report.reason.details["traceback"]
    assert "raise ValueError(text)" in traceback
    assert "duly/agent" not in traceback
    assert not report.gives_up


async def test_an_exception_outside_of_retry_on_gives_up(lab):
    report = await lab.run("fail_for_good")
    assert (report.reason.code, report.gives_up) == ("exception", True)


async def test_a_function_can_ask_to_be_run_again(lab):
    report = await lab.run("ask_again", 30)
    assert report.outcome is Outcome.FAILED
    assert (report.reason.code, report.reason.message) == ("retry_requested", "no stock yet")
    assert report.retry_after == 30.0


async def test_a_function_can_give_up(lab):
    report = await lab.run("give_up")
    assert (report.reason.code, report.reason.message) == ("gave_up", "sold out")
    assert report.gives_up


async def test_sys_exit_is_an_exception_like_others(lab):
    report = await lab.run("raise_exit")
    assert (report.reason.code, report.reason.message) == ("exception", "SystemExit: 3")
    assert await lab.value("add", 1, 1) == 2


async def test_bad_arguments_are_refused_by_name(lab):
    report = await lab.run("add", "two", 3)
    assert report.reason.code == "arguments_invalid"
    assert "a" in report.reason.message
    assert report.gives_up


async def test_a_result_that_is_not_json_is_a_failure(lab):
    report = await lab.run("nothing_json")
    assert (report.outcome, report.reason.code) == (Outcome.FAILED, "result_invalid")


async def test_a_result_over_the_limit_is_a_failure(lab):
    report = await lab.run("large", 2000)
    assert report.reason.code == "result_invalid"
    assert "2,002 bytes" in report.reason.message


async def test_output_belongs_to_the_call_that_wrote_it(lab):
    for text in ("one", "two"):
        report = await lab.run("write", text)
        written = report.tail.decode().splitlines()
        assert f"print {text}" in written
        assert f"stderr {text}" in written
        assert any(f"logged {text}" in line for line in written)
        assert report.log_size == len(report.tail)
        assert len(written) == 3
    assert (await lab.run("add", 1, 1)).tail == b""


async def test_output_of_children_and_of_c_code_is_caught():
    async with running() as lab:
        report = await lab.run("write_below", "x")
        assert sorted(report.tail.decode().splitlines()) == ["child x", "write x"]


async def test_output_of_calls_that_run_side_by_side_is_kept_apart():
    async with running(threads=4, concurrency=4) as lab:
        names = ["write_async", "write_in_thread"] * 4
        refs = [lab.start(name, f"n{number}") for number, name in enumerate(names)]
        for number, ref in enumerate(refs):
            _, report = await lab.end(ref)
            lines = report.tail.decode().splitlines()
            assert len(lines) == 5
            assert {line.split()[1] for line in lines} == {f"n{number}"}


async def test_long_output_is_kept_up_to_its_limit(lab):
    ref = lab.start("write_much", 1000, log_limit=10_000)
    _, report = await lab.end(ref)
    local = lab.executor.find(ref)
    assert report.log_size == local.log_size <= 10_000
    text = local.read_log(0, 20_000).decode()
    assert text.startswith("line 00000000\nline 00000001\n")
    assert "longer than its limit" in text[-200:]
    assert report.tail.decode() == text[-len(report.tail) :]
    assert (await lab.run("write", "next")).log_size < 100
    lab.executor.forget(ref)
    assert local.read_log(0, 10) == b""


async def test_output_can_be_followed_while_the_call_runs(lab, doorbell):
    ref = lab.start("write_and_wait", "hello", str(doorbell.path))
    await doorbell.ring()
    async with asyncio.timeout(10):
        followed, size = await lab.outputs.get()
    assert followed == ref
    assert lab.executor.find(ref).read_log(0, size) == b"hello\n"
    await lab.cancel(ref)


async def test_progress_is_passed_on(lab):
    await lab.run("progress")
    assert lab.said == [Progress(0.5, "half")]


async def test_a_function_knows_its_task(lab):
    task, attempt, name = await lab.value("told")
    assert (task, attempt, name) == ("1", 1, "tests.agent.pool.sample_app:told")


async def test_an_unknown_function_never_begins(lab):
    end, _ = await lab.end(lab.start("other:function"))
    assert end.never_begun
