"""Shares long polls between all who wait for single tasks in one event loop or process.

Newcomers are coalesced into a poll of their own. With too many polls, all are cancelled and merged
into one, so thousands of waits take few connections and each is rarely sent again.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from duly import clock

if TYPE_CHECKING:
    from duly.client.functions.app import App

Poll = Callable[[list[str], float], Awaitable[list[str]]]
MAX_POLLS = 4
MAX_POLLED_TASKS = 10_000
POLL_SECONDS = 25.0
COALESCE_SECONDS = 0.002
MAX_DIRECT_WAITS = 2
"""Threads that poll by themselves; only more than that are worth a thread with an event loop."""


class SharedWaits:
    """The waits of one event loop."""

    def __init__(self, poll: Poll) -> None:
        self._poll = poll
        self._futures: dict[str, asyncio.Future[None]] = {}
        self._waiters: dict[str, int] = {}
        self._new: list[str] = []
        self._is_starting = False
        self._polls: dict[asyncio.Task[None], list[str]] = {}

    @property
    def poll_count(self) -> int:
        """The number of polls in flight."""
        return len(self._polls)

    async def wait(self, task_id: str, timeout: float | None) -> bool:
        """Return True once the task has ended, or False after `timeout` seconds."""
        future = self._futures.get(task_id)
        if future is None:
            future = self._futures[task_id] = asyncio.get_running_loop().create_future()
            self._new.append(task_id)
            self._start_soon()
        self._waiters[task_id] = self._waiters.get(task_id, 0) + 1
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(future)
            return True
        except TimeoutError:
            return False
        finally:
            self._leave(task_id)

    def _leave(self, task_id: str) -> None:
        self._waiters[task_id] -= 1
        if self._waiters[task_id]:
            return
        del self._waiters[task_id]
        future = self._futures.pop(task_id, None)
        if future is not None:
            future.cancel()
        if not self._waiters:
            for poll in self._polls:
                poll.cancel()

    def _start_soon(self) -> None:
        if not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_later(COALESCE_SECONDS, self._start)

    def _start(self) -> None:
        self._is_starting = False
        ids, self._new = self._new, []
        if len(self._polls) >= MAX_POLLS:
            for poll, polled in self._polls.items():
                poll.cancel()
                ids += polled
            self._polls.clear()
        ids = self._awaited(ids)
        for start in range(0, len(ids), MAX_POLLED_TASKS):
            part = ids[start : start + MAX_POLLED_TASKS]
            task = asyncio.get_running_loop().create_task(self._poll_until_ended(part))
            self._polls[task] = part
            task.add_done_callback(lambda done: self._polls.pop(done, None))

    async def _poll_until_ended(self, ids: list[str]) -> None:
        while ids:
            try:
                ended = await self._poll(ids, POLL_SECONDS)
            except Exception as error:
                for task_id in self._awaited(ids):
                    self._settle(task_id, error)
                return
            for task_id in ended:
                self._settle(task_id, None)
            ids = self._awaited(ids)

    def _settle(self, task_id: str, error: Exception | None) -> None:
        future = self._futures.pop(task_id, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _awaited(self, ids: list[str]) -> list[str]:
        return [task_id for task_id in ids if task_id in self._futures]


class ProcessWaits:
    """The waits of all threads of a process: the first few poll directly, others share."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._lock = threading.Lock()
        self._direct = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def wait(self, task_id: str, timeout: float | None) -> bool:
        """Return True once the task has ended, or False after `timeout` seconds."""
        with self._lock:
            is_direct = self._direct < MAX_DIRECT_WAITS
            self._direct += is_direct
        if not is_direct:
            return self._share(task_id, timeout)
        try:
            return self._wait_directly(task_id, timeout)
        finally:
            with self._lock:
                self._direct -= 1

    def _wait_directly(self, task_id: str, timeout: float | None) -> bool:
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            seconds = POLL_SECONDS if until is None else max(until - clock.monotonic(), 0.0)
            if self._app.client.wait_for_any([task_id], min(seconds, POLL_SECONDS)):
                return True
            if until is not None and clock.monotonic() >= until:
                return False

    def _share(self, task_id: str, timeout: float | None) -> bool:
        waiting = asyncio.run_coroutine_threadsafe(
            _wait_in_loop(self._app, task_id, timeout), self._running_loop()
        )
        try:
            return waiting.result()
        except (KeyboardInterrupt, CancelledError):
            waiting.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="duly-waits", daemon=True
                ).start()
            return self._loop


async def _wait_in_loop(app: "App", task_id: str, timeout: float | None) -> bool:
    return await of_loop(app).wait(task_id, timeout)


def of_process(app: "App") -> ProcessWaits:
    """Return the shared waits of this process."""
    return app.connection.process_waits(app)


def of_loop(app: "App") -> SharedWaits:
    """Return the shared waits of the running event loop."""
    return app.connection.loop_waits(_poll_of(app))


def _poll_of(app: "App") -> Poll:
    async def poll(ids: list[str], seconds: float) -> list[str]:
        return await app.async_client.wait_for_any(ids, seconds)

    return poll
