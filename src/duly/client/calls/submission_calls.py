"""Calls that submit tasks and tell new ones from those that were submitted before."""

from collections.abc import Iterable
from typing import TypeVar, Unpack

from duly.client.call import Call
from duly.client.calls.task_calls import submit, submit_many
from duly.client.shapes.task_shapes import Task, TaskFields

T = TypeVar("T")


class SubmissionMethods:
    """Methods that submit tasks."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def submit_once(self, **task: Unpack[TaskFields]) -> tuple[Task, bool]:
        """Submit a task; return it, and False if its idempotency or unique key was used before.

        It is also False if an earlier try of this call stored it and the response was lost.
        """
        return self._send(submit(task).telling_if_created())

    def submit_many_once(
        self, tasks: Iterable[TaskFields], *, idempotency_key: str | None = None
    ) -> tuple[list[str], bool]:
        """Submit `tasks` atomically; return their ids, and False if the key was used before."""
        return self._send(submit_many(tasks, idempotency_key).telling_if_created())


class AsyncSubmissionMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def submit_once(self, **task: Unpack[TaskFields]) -> tuple[Task, bool]:
        """Submit a task; return it, and False if its idempotency or unique key was used before.

        It is also False if an earlier try of this call stored it and the response was lost.
        """
        return await self._send(submit(task).telling_if_created())

    async def submit_many_once(
        self, tasks: Iterable[TaskFields], *, idempotency_key: str | None = None
    ) -> tuple[list[str], bool]:
        """Submit `tasks` atomically; return their ids, and False if the key was used before."""
        return await self._send(submit_many(tasks, idempotency_key).telling_if_created())
