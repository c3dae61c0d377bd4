"""What functions need of a client; `duly.Client` has it, and so has what runs tasks in tests."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from duly.client.shapes.schedule_shapes import Schedule
from duly.client.shapes.task_shapes import DeadLetter, Task


class Backend(Protocol):
    """The blocking methods."""

    def submit(self, **task: Any) -> Task:
        """Submit a task."""

    def submit_many(self, tasks: Iterable[Any], *, idempotency_key: str | None = None) -> list[str]:
        """Submit tasks, all or none."""

    def submit_graph(
        self, tasks: Any, *, name: str | None = None, idempotency_key: str | None = None
    ) -> Any:
        """Submit a graph."""

    def upload_data(self, data: bytes) -> str:
        """Upload data and return its SHA-256."""

    def put_schedule(self, name: str, **fields: Any) -> Schedule:
        """Create or update the schedule with a name."""

    def wait_for_any(self, tasks: Sequence[str], timeout: float) -> list[str]:
        """Return the tasks that have ended, once at least one has or the time is over."""

    def get_task(self, task: str) -> Task:
        """Return a task."""

    def get_result(self, task: str) -> Any:
        """Return the result of a task as parsed JSON."""

    def get_dead_letter(self, task: str) -> DeadLetter:
        """Return a dead letter."""

    def cancel_task(self, task: str) -> Task:
        """Cancel a task."""

    def read_logs(self, task: str, attempt: int | None = None) -> bytes:
        """Return the log of an attempt."""


class AsyncBackend(Protocol):
    """The same methods with `await`."""

    async def submit(self, **task: Any) -> Task:
        """Submit a task."""

    async def submit_many(
        self, tasks: Iterable[Any], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Submit tasks, all or none."""

    async def submit_graph(
        self, tasks: Any, *, name: str | None = None, idempotency_key: str | None = None
    ) -> Any:
        """Submit a graph."""

    async def upload_data(self, data: bytes) -> str:
        """Upload data and return its SHA-256."""

    async def wait_for_any(self, tasks: Sequence[str], timeout: float) -> list[str]:
        """Return the tasks that have ended, once at least one has or the time is over."""

    async def get_task(self, task: str) -> Task:
        """Return a task."""

    async def get_result(self, task: str) -> Any:
        """Return the result of a task as parsed JSON."""

    async def get_dead_letter(self, task: str) -> DeadLetter:
        """Return a dead letter."""

    async def cancel_task(self, task: str) -> Task:
        """Cancel a task."""

    async def read_logs(self, task: str, attempt: int | None = None) -> bytes:
        """Return the log of an attempt."""
