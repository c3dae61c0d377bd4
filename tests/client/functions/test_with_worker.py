"""Functions run by a real worker: what an application sees of them."""

import asyncio
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

import duly
from tests.client.functions import shop
from tests.client.functions.shop import Size

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def server():
    with duly.testing.server("tests.client.functions.shop:app", processes=2) as server:
        yield server
        shop.app.close()


def test_a_function_runs_and_gives_its_result_and_log(server):
    handle = shop.encode.submit("a.mp4", Size(3, 4), quality=1.0)
    assert handle.result(timeout=60) == "a.mp4@3x4/1.0"
    assert (handle.status(), handle.logs()) == ("done", "encoding a.mp4\n")
    assert shop.encode.handle(handle.id).result() == "a.mp4@3x4/1.0"


async def test_an_async_function_is_awaited_in_a_coroutine(server):
    handles = [await shop.pause.submit_async(timedelta(milliseconds=n)) for n in range(5)]
    ended = {handle async for handle in duly.as_completed_async(handles, timeout=60)}
    assert ended == set(handles)
    assert await handles[3].result_async() == timedelta(milliseconds=6)
    await shop.app.close_async()


def test_a_failure_tells_reason_traceback_and_log(server):
    with pytest.raises(duly.TaskFailed) as failed:
        shop.fail.submit("bad height").result(timeout=60)
    error = failed.value
    assert error.reason is not None
    assert error.reason["code"] == "exception"
    assert "ValueError: bad height" in error.reason["message"]
    assert "raise ValueError(message)" in (error.traceback or "")
    assert error.log == "about to fail\n"


def test_many_are_one_request_and_awaited_with_one_poll(server):
    handles = shop.join.submit_many([([str(n)],) for n in range(50)])
    assert duly.wait(handles, timeout=60).not_done == []
    assert [handle.result() for handle in handles] == [str(n) for n in range(50)]
    assert duly.wait([shop.pause.submit(timedelta(seconds=30))], timeout=0.2).done == []


def test_stages_are_kept_across_attempts(server):
    assert shop.in_stages.submit(2).result(timeout=60) == [1, 3]


def test_results_flow_through_a_graph(server):
    with shop.app.graph("nightly") as graph:
        sizes = [shop.encode.node(name, Size(1, 1)) for name in "ab"]
        joined = shop.join.node([size.result for size in sizes])
    assert joined.handle.result(timeout=60) == "a@1x1/0.5+b@1x1/0.5"
    assert graph.id is not None
    upper = shop.join.submit([joined.handle.as_argument(), "x"], separator="/")
    assert upper.result(timeout=60) == "a@1x1/0.5+b@1x1/0.5/x"


def test_children_are_linked_to_their_parent(server):
    parent = shop.split.submit(["a", "b"])
    ids = parent.result(timeout=60)
    assert [shop.encode.handle(one).result(60) for one in ids] == ["a@1x1/0.5", "b@1x1/0.5"]
    assert {shop.app.client.get_task(one)["parent"] for one in ids} == {parent.id}


def test_large_arguments_go_through_the_object_store(server):
    parts = ["x" * 1000] * 2000
    handle = shop.join.submit(parts, separator="")
    with pytest.raises(duly.TaskFailed):  # the result is beyond the limit of results
        handle.result(timeout=60)
    assert handle.task()["reason"]["code"] == "result_invalid"


def test_secret_arguments_are_shown_to_nobody(server):
    handle = shop.log_in.submit("kim", password="hunter2")
    assert handle.result(timeout=60) == 10
    assert handle.task()["call"]["kwargs"] == {"password": "***"}


def test_a_task_is_cancelled(server):
    handle = shop.pause.submit(timedelta(minutes=5))
    handle.cancel()
    with pytest.raises(duly.TaskFailed) as failed:
        handle.result(timeout=60)
    assert failed.value.details["status"] == "cancelled"


def test_hundreds_of_threads_share_a_few_polls(server):
    handles = shop.join.submit_many([([str(n)],) for n in range(300)])
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda h=handle: results.append(h.result(timeout=60)))
        for handle in handles
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(str(n) for n in range(300))


async def test_hundreds_of_coroutines_share_a_few_polls(server):
    handles = shop.join.map([[str(n)] for n in range(300)])
    results = await asyncio.gather(*(handle.result_async(timeout=60) for handle in handles))
    assert results == [str(n) for n in range(300)]
    await shop.app.close_async()


def test_a_schedule_is_created_once_and_updated(server):
    first = shop.encode.schedule("nightly", daily="06:30", args=("a", Size(1, 2)))
    again = shop.encode.schedule("nightly", daily="06:30", args=("a", Size(1, 2)))
    later = shop.encode.schedule("nightly", daily="07:30", args=("a", Size(1, 2)))
    assert first["id"] == again["id"] == later["id"]
    assert (first["next_run_at"] == again["next_run_at"]) and later["daily"] == "07:30"


SCRIPT = """
import os
import duly
app = duly.App("script")

@app.task(name="tests.client.functions.shop:join")
def join(parts: list[str], separator: str = "+") -> str: ...

parent = join.submit(["a"]).result(timeout=60)
if (pid := os.fork()) == 0:
    os._exit(0 if join.submit(["b"]).result(timeout=60) == "b" else 1)
print(parent, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_an_app_works_on_after_a_fork(server):
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "a 0\n", ran.stderr
