"""Blocking calls to PostgreSQL's programs, and Ctrl-C while one runs."""

import asyncio
import gc
import threading

import pytest

from duly.launch.local.postgres import _in_thread


async def test_a_call_that_fails_after_ctrl_c_is_not_logged(caplog):
    begun, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go_on.wait(10)
        raise ZeroDivisionError

    call = asyncio.create_task(_in_thread(fail))
    await asyncio.to_thread(begun.wait, 10)
    call.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    del call
    gc.collect()
    await asyncio.sleep(0)
    assert caplog.text == ""
