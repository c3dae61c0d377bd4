"""Signals: the first one winds up and decides the exit code, the last one hurries."""

import asyncio
import os
import signal

import pytest

from duly.errors import Unavailable
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


async def run_until(*signums: signal.Signals, **callbacks) -> int:
    """Return the exit code of work that ends when it is hurried, or at once after one signal."""
    interrupts = Signals(**callbacks)

    async def work() -> None:
        try:
            os.kill(os.getpid(), signums[0])
            await asyncio.Event().wait()
        finally:
            for signum in signums[1:]:
                os.kill(os.getpid(), signum)
                await asyncio.sleep(0.01)
            if len(signums) > 1:
                await interrupts.hurry.wait()

    async with asyncio.timeout(10):
        return await interrupts.run(work())


@pytest.mark.usefixtures("hangs_up")
@pytest.mark.parametrize(
    ("signums", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGTERM], 0),
        ([signal.SIGHUP], 0),
        ([signal.SIGINT, signal.SIGTERM], 130),
        ([signal.SIGTERM, signal.SIGINT], 0),
    ],
)
async def test_the_first_signal_decides_the_exit_code(signums, code):
    assert await run_until(*signums) == code


async def test_work_that_ends_by_itself_ends_with_0():
    async def work() -> None:
        pass

    assert await Signals().run(work()) == 0


async def test_the_second_of_three_signals_only_tells_what_is_waited_for():
    calls = []
    names = ("on_stop", "on_repeat", "on_hurry")
    callbacks = {name: lambda name=name: calls.append(name) for name in names}
    assert await run_until(*[signal.SIGINT] * 4, **callbacks) == 130
    assert calls == list(names)


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
    interrupts = Signals(lambda: calls.append("stop"), on_hurry=lambda: calls.append("hurry"))

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


@pytest.mark.parametrize(
    "error", [Unavailable("lost"), ExceptionGroup("", [Unavailable("lost"), Unavailable("lost")])]
)
async def test_a_connection_that_is_lost_while_stopping_does_not_change_the_exit_code(error):
    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            raise error

    async with asyncio.timeout(10):
        assert await Signals().run(work()) == 130


async def test_what_else_fails_while_stopping_fails():
    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            raise ExceptionGroup("", [Unavailable("lost"), ZeroDivisionError()])

    with pytest.raises(ExceptionGroup):
        await Signals().run(work())
