"""Describes what a stopping `duly up` still waits for."""

from collections.abc import Iterator
from contextlib import contextmanager

from duly.clock import monotonic

AGENT = "the agent"


class ShutdownProgress:
    """The parts that run, and the tasks that have not ended since their agent was told to stop."""

    def __init__(self, grace: float) -> None:
        """Begin with no parts; tasks are killed `grace` seconds after they were told to end."""
        self._grace = grace
        self._parts: list[str] = []
        self._tasks = 0
        self._killed_at = float("inf")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count a part as running during the block."""
        self._parts.append(name)
        try:
            yield
        finally:
            self._parts.remove(name)

    def begin(self) -> str:
        """Start the clock of the shutdown, and say what it does."""
        self._killed_at = monotonic() + self._grace
        return (
            f"Stopping: running tasks have {_span(self._grace)} to end, and return to their queue. "
            "Press Ctrl-C again to see what is left."
        )

    def set_tasks(self, tasks: int) -> None:
        """Store how many tasks have not ended."""
        self._tasks = tasks

    def describe(self) -> str:
        """Say what the shutdown waits for, and how to end the wait."""
        if self._tasks and AGENT in self._parts:
            is_one = self._tasks == 1
            count = "1 task" if is_one else f"{self._tasks} tasks"
            left = self._killed_at - monotonic()
            verb = "is being killed" if is_one else "are being killed"
            if left > 0:
                verb = f"{'has' if is_one else 'have'} up to {_span(left)} to end"
            return f"Still stopping: {count} {verb}. Press Ctrl-C again to stop at once."
        return f"Still stopping: {self._waits_for()}. Press Ctrl-C again to stop at once."

    def hurry(self) -> str:
        """Say what stopping at once does."""
        return (
            "Stopping at once: running tasks are killed, and run again after the next start; "
            f"{self._waits_for()}."
        )

    def _waits_for(self) -> str:
        """Name the parts that have not stopped yet, in the order in which they stop."""
        return f"waiting for {', '.join(reversed(self._parts)) or 'the last process'}"


def _span(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} min"
