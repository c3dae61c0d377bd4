"""A call that has begun in this process, and the calls that wait."""

import threading
from collections.abc import Callable

from duly.agent.pool.messages import Run
from duly.client.functions.control import Cancelled


class RunningCall:
    """A call that has begun. It is interrupted only while it is inside of the function."""

    __slots__ = ("_interrupt", "_is_inside", "_lock", "_withdraw", "is_interrupted", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.is_interrupted = False
        self._is_inside = False
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self._withdraw: Callable[[], None] | None = None

    @property
    def is_raising(self) -> bool:
        """Whether an interruption is to be raised where the function is now."""
        return self.is_interrupted and self._is_inside

    def enter(self, interrupt: Callable[[], None], withdraw: Callable[[], None]) -> None:
        """Enter the function. `interrupt` raises in it, `withdraw` undoes what was not raised."""
        with self._lock:
            if self.is_interrupted:
                raise Cancelled
            self._interrupt, self._withdraw = interrupt, withdraw
            self._is_inside = True

    def leave(self) -> None:
        """Leave the function: nothing is raised from here on."""
        with self._lock:
            self._is_inside = False
            if self.is_interrupted and self._withdraw is not None:
                self._withdraw()

    def interrupt(self) -> None:
        """Raise `Cancelled` in the function, once."""
        with self._lock:
            if not self.is_interrupted:
                self.is_interrupted = True
                if self._is_inside and self._interrupt is not None:
                    self._interrupt()


class Calls:
    """The calls of this process that wait or run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Run] = {}
        self._running: dict[int, RunningCall] = {}

    def add(self, run: Run) -> None:
        """Let a call wait."""
        self._waiting[run.number] = run

    def begin(self, number: int) -> RunningCall | None:
        """Take a waiting call to run it; None if it was withdrawn."""
        with self._lock:
            run = self._waiting.pop(number, None)
            if run is None:
                return None
            call = self._running[number] = RunningCall(run)
            return call

    def withdraw(self, number: int) -> bool:
        """Remove a call; False if it does not wait any more."""
        with self._lock:
            return self._waiting.pop(number, None) is not None

    def find(self, number: int) -> RunningCall | None:
        """Return a running call."""
        return self._running.get(number)

    def finish(self, call: RunningCall) -> None:
        """Forget a call that has ended."""
        self._running.pop(call.run.number, None)
