"""What a running function sees of Duly: `duly.context()`.

The context variable makes it correct for threads and coroutines alike. What it asks of Duly goes
through an `AttemptChannel`, which the worker implements, and `duly.testing.inline` in memory.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from duly import clock
from duly.client.shapes.task_shapes import Duration
from duly.errors import DulyError

if TYPE_CHECKING:
    from duly.client.functions.handle import Handle
    from duly.client.functions.task import Task

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("duly.task")


class AttemptChannel(Protocol):
    """The way from a running function to Duly, on behalf of its attempt."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the attempt is to stop."""

    def progress(self, fraction: float, text: str | None) -> None:
        """Report progress; it may be left out if there are many reports."""

    def stages(self) -> dict[str, bytes]:
        """Return the JSON of the stages that are recorded, by name."""

    def save_stage(self, name: str, result: bytes) -> bytes:
        """Record a stage and return what is recorded; raises Fenced if the lease is lost."""

    def submit(self, task: dict[str, Any]) -> dict[str, Any]:
        """Submit a child task and return it."""

    def throttled(self, key: str, retry_after: float) -> None:
        """Report that a downstream has throttled the attempt."""


@dataclass
class Context:
    """The attempt that runs the current function."""

    task_id: str
    attempt: int
    fencing_token: int
    """A number that rises with every attempt; give it to systems that can refuse older ones."""
    name: str
    deadline: float | None
    """When the execution cap ends the attempt, as in `time.monotonic()`; None if not known."""
    channel: AttemptChannel = field(repr=False)
    log: logging.Logger = field(default=log, repr=False)
    """A logger whose records are in the log of the task."""
    _submitted: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the task is cancelled or at its cap; long computations should look at times."""
        return self.channel.is_cancelled

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the execution cap, never negative; None if there is no cap."""
        return None if self.deadline is None else max(self.deadline - clock.monotonic(), 0.0)

    def progress(self, fraction: float, text: str | None = None) -> None:
        """Report progress from 0 to 1, with a few words."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress: {fraction} is not from 0 to 1")
        self.channel.progress(fraction, text)

    def throttled(self, key: str, *, retry_after: Duration) -> None:
        """Report that the downstream `key` has throttled this task; its limits are lowered."""
        from duly.client.functions.control import seconds_of

        self.channel.throttled(key, seconds_of(retry_after))

    def stage(self, name: str, function: Callable[[], R]) -> R:
        """Run `function` unless an earlier attempt has, and return its recorded result.

        If the process dies between the effect of `function` and the record, it runs again: the
        two are not one commit. See `once` for effects in your own database.
        """
        from duly.client.functions import stages

        return stages.run(self, name, function)

    async def stage_async(self, name: str, function: Callable[[], Awaitable[R]]) -> R:
        """Do the same with a coroutine function."""
        from duly.client.functions import stages

        return await stages.run_async(self, name, function)

    def once(self, key: str, function: Callable[[], R], *, connection: Any = None) -> R:
        """Run `function` once for this task and return its result, in whichever attempt it was.

        With `connection`, a DB-API connection of yours in a transaction, the record is a row of
        the table `duly_once` in your database. It is committed or rolled back together with what
        `function` writes there, which makes it exactly once. Without, it is like `stage`.
        """
        from duly.client.functions import once, stages

        if connection is None:
            return stages.run(self, f"once:{key}", function)
        return once.run(connection, f"{self.task_id}/{key}", function)

    async def once_async(
        self, key: str, function: Callable[[], Awaitable[R]], *, connection: Any = None
    ) -> R:
        """Do the same with a coroutine function and, if given, a connection of asyncpg."""
        from duly.client.functions import once, stages

        if connection is None:
            return await stages.run_async(self, f"once:{key}", function)
        return await once.run_async(connection, f"{self.task_id}/{key}", function)

    def submit(self, task: "Task[P, R, Any]", *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Submit a child of this task: `duly.context().submit(encode, "a.mp4", height=720)`.

        An attempt that repeats the same calls gets the children of the attempt before it.
        """
        from duly.client.functions.children import submit_child

        return submit_child(self, task, args, kwargs)

    def ordinal(self, key: str) -> int:
        """Return how often this attempt has asked for the same `key` before."""
        count = self._submitted.get(key, 0)
        self._submitted[key] = count + 1
        return count


_current: ContextVar[Context] = ContextVar("duly_context")


def context() -> Context:
    """Return the context of the running task; raises DulyError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise DulyError(
            "duly.context() works in a function that runs as a task. In a test, submit the "
            "function under duly.testing.inline()."
        ) from None


@contextmanager
def running(current: Context) -> Iterator[Context]:
    """Make `current` the context of what runs in the block."""
    token = _current.set(current)
    try:
        yield current
    finally:
        _current.reset(token)
