"""Signals: the first one winds up, the second one hurries."""

import asyncio
import os
import signal

import pytest

from duly.launch.signals import STOP_SIGNALS, Signals


@pytest.fixture
def hangs_up():
    """Let SIGHUP do what it does unless it is told otherwise, however these tests were started."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangs_up")
@pytest.mark.parametrize("signum", STOP_SIGNALS)
async def test_the_first_signal_winds_the_work_up_and_the_second_one_hurries(signum):
    interrupts, seen = Signals(), []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signum)
            await asyncio.Event().wait()
        finally:
            seen.append(("winding up", interrupts.hurry.is_set()))
            os.kill(os.getpid(), signum)
            await interrupts.hurry.wait()
            seen.append(("hurried", interrupts.hurry.is_set()))

    before = signal.getsignal(signum)
    async with asyncio.timeout(10):
        await interrupts.run(work())
    assert seen == [("winding up", False), ("hurried", True)]
    assert signal.getsignal(signum) == before or signum == signal.SIGINT


async def test_work_that_fails_fails():
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Signals().run(work())


async def test_work_that_is_cancelled_by_others_is_cancelled():
    async def work() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await Signals().run(work())


@pytest.mark.usefixtures("hangs_up")
async def test_what_was_started_with_nohup_goes_on_when_the_terminal_is_closed():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts = Signals()

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        await interrupts.run(work())
    assert not interrupts.hurry.is_set()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


async def test_the_second_signal_is_reported_once():
    calls = []
    interrupts = Signals(lambda: calls.append("stop"), lambda: calls.append("hurry"))

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0)
            await interrupts.hurry.wait()

    async with asyncio.timeout(10):
        await interrupts.run(work())
    assert calls == ["stop", "hurry"]
