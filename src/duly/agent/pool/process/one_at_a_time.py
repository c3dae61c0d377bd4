"""Runs one call at a time, in the main thread."""

import queue
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any

from duly.agent.pool.begun_ring import BegunRing
from duly.agent.pool.messages import End, Run, Withdrawn
from duly.agent.pool.process.captured_output import CapturedOutput
from duly.agent.pool.process.connection import Connection
from duly.agent.pool.process.performance import Performance
from duly.agent.pool.process.running_call import Calls, RunningCall
from duly.client.functions.control import Cancelled
from duly.clock import monotonic

INTERRUPT = signal.SIGURG
"""Breaks into system calls such as a sleep. Its default is to be ignored, so hardly any program
uses it, and a stray one does no harm."""


class OneAtATime:
    """The calls of this process, one after the other."""

    def __init__(self, app: Any, connection: Connection, ring: BegunRing) -> None:
        self._app = app
        self._connection = connection
        self._ring = ring
        self._output: CapturedOutput
        self._calls = Calls()
        self._numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._current: RunningCall | None = None
        self._thread = threading.get_ident()
        self._runner: Any = None
        signal.signal(INTERRUPT, self._on_interrupt)

    def capture(self, output: CapturedOutput) -> None:
        """Take the output of calls from there."""
        self._output = output

    def add(self, run: Run) -> None:
        """Let a call wait for its turn."""
        if self._app.find(run.function) is None:
            self._connection.send(Withdrawn(run.number))
            return
        self._calls.add(run)
        self._numbers.put(run.number)

    def end(self, message: End) -> None:
        """Withdraw or interrupt a call."""
        if self._calls.withdraw(message.number):
            self._connection.send(Withdrawn(message.number))
        elif not message.only_withdraw and (call := self._calls.find(message.number)) is not None:
            call.interrupt()

    def silence(self, number: int) -> None:
        """Drop the further output of a call."""
        if self._calls.find(number) is not None:
            self._output.silence()

    def follow(self, number: int) -> None:
        """Do nothing: all output is in a file."""

    def quit(self) -> None:
        """Let `run` return."""
        self._numbers.put(0)

    def run(self) -> None:
        """Run calls until told to quit."""
        while number := self._numbers.get():
            call = self._calls.begin(number)
            if call is not None:
                self._perform(call)

    def run_async(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the loop of this process."""
        if self._runner is None:
            import asyncio  # Not every application needs it.

            self._runner = asyncio.Runner()
        self._runner.run(coroutine)

    def _perform(self, call: RunningCall) -> None:
        self._output.begin()
        at = monotonic()
        self._ring.mark(call.run.number, at)
        performance = Performance(self._app, call, self._connection, at)
        if performance.task.is_async:
            self.run_async(self._perform_async(performance))
        else:
            self._current = call
            performance.run(self._interrupt, lambda: None)
            self._current = None
        self._calls.finish(call)
        self._connection.send(performance.ended(self._output.end(call.run.log_limit)))

    async def _perform_async(self, performance: Performance) -> None:
        import asyncio

        loop, inner = asyncio.get_running_loop(), asyncio.current_task()
        assert inner is not None  # noqa: S101
        await performance.run_async(lambda: _call_soon(loop, inner.cancel))

    def _interrupt(self) -> None:
        signal.pthread_kill(self._thread, INTERRUPT)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise in the function that this thread is in; between functions, do nothing."""
        call = self._current
        if call is not None and call.is_raising:
            self._current = None
            raise Cancelled


def _call_soon(loop: Any, action: Any) -> None:
    loop.call_soon_threadsafe(action)
