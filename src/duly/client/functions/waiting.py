"""Waits for tasks: for one, for all of many, or for each as it ends, with one long poll."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from duly import clock
from duly.client.functions import shared_waits
from duly.errors import Invalid

if TYPE_CHECKING:
    from duly.client.functions.handle import Handle

R = TypeVar("R")
MAX_POLL_SECONDS = 25.0
MAX_POLLED_TASKS = 10_000
"""A server waits for no more tasks in one request."""


class Waited(NamedTuple):
    """The handles whose tasks have ended, and the others."""

    done: "list[Handle[Any]]"
    not_done: "list[Handle[Any]]"


class Progress:
    """Which of many handles have ended so far, and how long there is left to wait."""

    def __init__(self, handles: "Iterable[Handle[Any]]", timeout: float | None) -> None:
        self.handles = list(handles)
        self._pending: dict[str, list[Handle[Any]]] = {}
        for handle in self.handles:
            self._pending.setdefault(handle.id, []).append(handle)
        apps = {id(handle.app): handle.app for handle in self.handles}
        if len(apps) > 1:
            raise Invalid("handles", "they belong to several apps. Wait for those of one.")
        self.app = next(iter(apps.values()), None)
        self._until = None if timeout is None else clock.monotonic() + timeout
        self._timeout = timeout

    @property
    def is_over(self) -> bool:
        """Return True if all tasks have ended."""
        return not self._pending

    @property
    def seconds(self) -> float:
        """How long the next poll may take."""
        if self._until is None:
            return MAX_POLL_SECONDS
        return max(min(self._until - clock.monotonic(), MAX_POLL_SECONDS), 0.0)

    @property
    def is_late(self) -> bool:
        """Return True if the time is over."""
        return self._until is not None and clock.monotonic() >= self._until

    def ids(self) -> list[str]:
        """Return the tasks of the next poll; with too many for one, others each time."""
        ids = list(self._pending)
        if len(ids) <= MAX_POLLED_TASKS:
            return ids
        polled = ids[:MAX_POLLED_TASKS]
        for task_id in polled:
            self._pending[task_id] = self._pending.pop(task_id)
        return polled

    def settle(self, ended: Sequence[str]) -> "list[Handle[Any]]":
        """Take note of tasks that have ended, and return their handles."""
        return [handle for task_id in ended for handle in self._pending.pop(task_id, ())]

    def outcome(self) -> Waited:
        """Return the handles, in their order."""
        pending = self._pending
        return Waited(
            [handle for handle in self.handles if handle.id not in pending],
            [handle for handle in self.handles if handle.id in pending],
        )

    def timed_out(self) -> TimeoutError:
        """Return the error for tasks that have not ended in time."""
        count = len(self._pending)
        return TimeoutError(f"{count} of {len(self.handles)} tasks have not ended in time.")


def wait(handles: "Iterable[Handle[Any]]", timeout: float | None = None) -> Waited:
    """Wait until all tasks have ended or `timeout` seconds are over; return `(done, not_done)`."""
    progress = Progress(handles, timeout)
    while not progress.is_over and progress.app is not None:
        client = progress.app.client
        progress.settle(client.wait_for_any(progress.ids(), progress.seconds))
        if progress.is_late:
            break
    return progress.outcome()


async def wait_async(handles: "Iterable[Handle[Any]]", timeout: float | None = None) -> Waited:
    """Do the same in a coroutine."""
    progress = Progress(handles, timeout)
    while not progress.is_over and progress.app is not None:
        client = progress.app.async_client
        progress.settle(await client.wait_for_any(progress.ids(), progress.seconds))
        if progress.is_late:
            break
    return progress.outcome()


def as_completed(
    handles: "Iterable[Handle[R]]", timeout: float | None = None
) -> "Iterator[Handle[R]]":
    """Yield the handles as their tasks end; raises TimeoutError after `timeout` seconds."""
    progress = Progress(handles, timeout)
    while not progress.is_over and progress.app is not None:
        client = progress.app.client
        yield from progress.settle(client.wait_for_any(progress.ids(), progress.seconds))
        if progress.is_late and not progress.is_over:
            raise progress.timed_out()


async def as_completed_async(
    handles: "Iterable[Handle[R]]", timeout: float | None = None
) -> "AsyncIterator[Handle[R]]":
    """Do the same in a coroutine."""
    progress = Progress(handles, timeout)
    while not progress.is_over and progress.app is not None:
        client = progress.app.async_client
        for handle in progress.settle(await client.wait_for_any(progress.ids(), progress.seconds)):
            yield handle
        if progress.is_late and not progress.is_over:
            raise progress.timed_out()


def wait_for(handle: "Handle[Any]", timeout: float | None) -> None:
    """Wait for one task; raises TimeoutError. Waits of many threads share their polls."""
    if not shared_waits.of_process(handle.app).wait(handle.id, timeout):
        raise _timed_out(handle, timeout)


async def wait_for_async(handle: "Handle[Any]", timeout: float | None) -> None:
    """Wait for one task in a coroutine; waits of one event loop share their polls."""
    if not await shared_waits.of_loop(handle.app).wait(handle.id, timeout):
        raise _timed_out(handle, timeout)


def _timed_out(handle: "Handle[Any]", timeout: float | None) -> TimeoutError:
    return TimeoutError(f"Task {handle.id} has not ended within {timeout:g} s.")
