"""Runs many calls at once: plain functions in threads, async functions on one event loop."""

import asyncio
import contextvars
import ctypes
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from duly.agent.pool.begun_ring import BegunRing
from duly.agent.pool.messages import End, Run, Withdrawn
from duly.agent.pool.process.connection import Connection
from duly.agent.pool.process.performance import Performance
from duly.agent.pool.process.routed_output import CallLog, current_log
from duly.agent.pool.process.running_call import Calls, RunningCall
from duly.client.functions.control import Cancelled
from duly.clock import monotonic


class ManyAtOnce:
    """The calls of this process: up to `threads` plain ones, and `concurrency` async ones."""

    def __init__(
        self,
        app: Any,
        connection: Connection,
        ring: BegunRing,
        *,
        threads: int,
        concurrency: int,
    ) -> None:
        self._app = app
        self._connection = connection
        self._ring = ring
        self._calls = Calls()
        self._room = {False: threads, True: concurrency}
        """How many more may begin, by whether they are async."""
        self._waiting: dict[bool, deque[int]] = {False: deque(), True: deque()}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="call")
        self._loop = asyncio.new_event_loop()
        self._logs: dict[int, CallLog] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, run: Run) -> None:
        """Let a call wait until there is room."""
        if self._app.find(run.function) is None:
            self._connection.send(Withdrawn(run.number))
            return
        self._calls.add(run)
        self._loop.call_soon_threadsafe(self._queue, run)

    def end(self, message: End) -> None:
        """Withdraw or interrupt a call."""
        if self._calls.withdraw(message.number):
            self._connection.send(Withdrawn(message.number))
        elif not message.only_withdraw and (call := self._calls.find(message.number)) is not None:
            call.interrupt()

    def silence(self, number: int) -> None:
        """Do nothing: each log knows its limit."""

    def follow(self, number: int) -> None:
        """Write the output of a call to its file from now on."""
        log = self._logs.get(number)
        if log is not None:
            log.follow()

    def quit(self) -> None:
        """Let `run` return."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def run(self) -> None:
        """Run calls until told to quit."""
        self._loop.run_forever()

    def run_async(self, coroutine: Any) -> None:
        """Run a coroutine on the loop of this process."""
        self._loop.run_until_complete(coroutine)

    def _queue(self, run: Run) -> None:
        self._waiting[self._app.find(run.function).is_async].append(run.number)
        self._begin_next()

    def _begin_next(self) -> None:
        for is_async, waiting in self._waiting.items():
            while waiting and self._room[is_async] > 0:
                call = self._calls.begin(waiting.popleft())
                if call is not None:
                    self._room[is_async] -= 1
                    self._begin(call, is_async=is_async)

    def _begin(self, call: RunningCall, *, is_async: bool) -> None:
        run, at = call.run, monotonic()
        self._ring.mark(run.number, at)
        log = self._logs[run.number] = CallLog(run.spool, run.log_limit)
        performance = Performance(self._app, call, self._connection, at)
        context = contextvars.copy_context()
        context.run(current_log.set, log)
        if is_async:
            task = self._loop.create_task(self._perform(performance, log), context=context)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._threads.submit(context.run, self._perform_in_thread, performance, log)

    async def _perform(self, performance: Performance, log: CallLog) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        cancel = task.cancel
        await performance.run_async(lambda: _call_soon(self._loop, cancel))
        self._finish(performance, log)
        self._make_room(is_async=True)

    def _perform_in_thread(self, performance: Performance, log: CallLog) -> None:
        thread = threading.get_ident()
        performance.run(lambda: _raise_in(thread, Cancelled), lambda: _raise_in(thread, None))
        self._finish(performance, log)
        self._loop.call_soon_threadsafe(lambda: self._make_room(is_async=False))

    def _finish(self, performance: Performance, log: CallLog) -> None:
        self._calls.finish(performance.call)
        self._logs.pop(performance.call.run.number, None)
        self._connection.send(performance.ended(log.end()))

    def _make_room(self, *, is_async: bool) -> None:
        self._room[is_async] += 1
        self._begin_next()


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise `error` at the next instruction of a thread; None takes back what was not raised."""
    found = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), found)


def _call_soon(loop: asyncio.AbstractEventLoop, action: Any) -> None:
    loop.call_soon_threadsafe(action)
